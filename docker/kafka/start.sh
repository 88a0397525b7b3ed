#!/bin/bash
# What KAFKA_* variables and files in /mnt/shared/config say becomes the configuration, by the class
# of Kafka's own that does so in the official image; the storage is formatted at the first start.
set -euo pipefail
export CLUSTER_ID=${CLUSTER_ID:-5rQd1y0CTkGr2cXUVbEmtA}
config=$(mktemp -d)
java=(/opt/java/bin/java -cp "/opt/kafka/libs/*" -Djava.io.tmpdir=/tmp)

told=$("${java[@]}" -XX:TieredStopAtLevel=1 kafka.docker.KafkaDockerWrapper setup \
  -D /etc/kafka/docker -M /mnt/shared/config -F "$config" 2>&1) \
  || [[ $told == *"already formatted"* ]] \
  || { echo "$told" >&2; exit 1; }

# These variables are lists of options.
# shellcheck disable=SC2086
exec "${java[@]}" ${KAFKA_HEAP_OPTS:--Xmx1G} ${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseG1GC} \
  ${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=$config/log4j2.yaml} ${KAFKA_OPTS:-} \
  kafka.Kafka "$config/server.properties"

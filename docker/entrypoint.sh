#!/bin/bash
# What the first argument asks for: a role of Spark's, or a command of errata.
set -euo pipefail

home=/var/lib/errata
mkdir -p "$home/tmp" 2> /dev/null && [ -w "$home/tmp" ] || {
  echo "errata: needs a folder to write to at $home, found one that user $(id -u) can't write;" \
    "mount a volume there that it owns" >&2
  exit 1
}

case ${1:-} in
  driver) # of Kubernetes, in cluster mode; its own settings lie where spark-env.sh is
    [ -w . ] || cd "$(mktemp -d)"
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "${@:2}"
    ;;
  executor) # of Kubernetes: all that it is told is in variables
    options=()
    while name=SPARK_JAVA_OPT_${#options[@]}; [ -n "${!name+given}" ]; do
      options+=("${!name}")
    done
    cd "$(mktemp -d)" # files that come with a job land in the working folder
    exec "$JAVA_HOME/bin/java" "${options[@]}" \
      "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*:${SPARK_EXTRA_CLASSPATH:-}:$PWD" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  spark-master) # of a cluster without Kubernetes
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master "${@:2}"
    ;;
  spark-worker)
    export SPARK_WORKER_DIR=${SPARK_WORKER_DIR:-$home/work}
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker "${@:2}"
    ;;
  *)
    exec errata "$@"
    ;;
esac

# Spark 4.0.0 makes a folder `artifacts` where its driver is started, whatever its settings say.
[ -w . ] || cd "$(mktemp -d)"

#!/bin/sh
# Starts a Redis server (start.sh server) or a sentinel (start.sh sentinel) on one of three hosts that each have both. They record in the
# folder what they learn of each other. A server whose folder is empty never starts as the primary, since all others would copy it: it waits
# until two sentinels name another server, and follows that. Only the very first server is started with FIRST=1, once, or finds a file
# `first` in its folder.
#
# REDIS_SERVERS and REDIS_SENTINELS: HOST:PORT of all, separated by blanks   REDIS_SELF: HOST:PORT of this one
# REDIS_DIR: the folder   REDISCLI_AUTH: the password of all   REDIS_MEMORY_BYTES_MAX
set -eu
umask 077
host=${REDIS_SELF%:*} port=${REDIS_SELF##*:} file=$REDIS_DIR/redis.conf

# Prints HOST:PORT of the server that two sentinels call the primary, or nothing.
primary() {
  for each in $REDIS_SENTINELS; do
    answer=$(timeout 2 redis-cli -h "${each%:*}" -p "${each##*:}" sentinel get-master-addr-by-name sluice 2>/dev/null) || answer=
    echo $answer | sed -n 's/^\([^ ]*\) \([0-9]*\)$/\1:\2/p'
  done | sort | uniq -c | sed -n 's/^ *[2-9] //p'
}

# Prints HOST:PORT of the server to follow, once there is one; of this server if it is the first.
chosen() {
  while [ "${FIRST:-0}" != 1 ] && [ ! -e "$REDIS_DIR/first" ]; do
    named=$(primary)
    if [ -n "$named" ] && [ "$named" != "$REDIS_SELF" ]; then
      echo "$named"
      return
    fi
    sleep 1
  done
  echo "$REDIS_SELF"
}

server() {
  if [ ! -e "$file" ]; then
    named=$(chosen)
    cat >"$file.new" <<CONFIGURATION
port $port
dir "$REDIS_DIR"
replica-announce-ip $host
requirepass $REDISCLI_AUTH
masterauth $REDISCLI_AUTH
appendonly yes
appendfsync always
auto-aof-rewrite-min-size 1gb
rdbcompression no
save ""
maxmemory ${REDIS_MEMORY_BYTES_MAX:-6442450944}
maxmemory-policy noeviction
lazyfree-lazy-expire yes
min-replicas-to-write 1
min-replicas-max-lag 3
# A replica that was away for seconds gets only what it missed; a new one gets everything, without waiting for other replicas.
repl-backlog-size 64mb
repl-diskless-sync-delay 1
CONFIGURATION
    [ "$named" = "$REDIS_SELF" ] || echo "replicaof ${named%:*} ${named##*:}" >>"$file.new"
    mv "$file.new" "$file"
  fi
  rm -f "$REDIS_DIR/first"
  exec redis-server "$file"
}

sentinel() {
  if [ ! -e "$file" ]; then
    named=$(primary)
    named=${named:-${REDIS_SERVERS%% *}}
    cat >"$file.new" <<CONFIGURATION
port $port
dir "$REDIS_DIR"
sentinel announce-ip $host
requirepass $REDISCLI_AUTH
sentinel sentinel-pass $REDISCLI_AUTH
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel monitor sluice ${named%:*} ${named##*:} 2
sentinel auth-pass sluice $REDISCLI_AUTH
sentinel down-after-milliseconds sluice 2000
sentinel failover-timeout sluice 10000
CONFIGURATION
    mv "$file.new" "$file"
  fi
  exec redis-server "$file" --sentinel
}

"$1"

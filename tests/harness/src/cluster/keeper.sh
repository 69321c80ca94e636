# Ends a cluster for good: processes, network, control groups, folder. A script, since
# it has to run after the program that started the cluster has been killed.
#
#   sh -c SCRIPT keeper FOLDER CGROUP INTERFACE LOCK
#
# It waits for the end of its input first: the owner of the cluster holds the other end.
# LOCK is a file that goes last, while it is still locked.

folder=$1 cgroup=$2 interface=$3 lock=$4
cat >/dev/null

# A process is ours if it was started when its record says.
is_running() { # ID START
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # The fields behind the name, of which the first is the state and the twentieth the start.
  set -- "$2" ${line##*") "}
  [ "$2" != Z ] && [ "${21}" = "$1" ]
}

kill_all() {
  clean=yes
  for record in "$folder"/run/*.pid; do
    { read -r id start <"$record"; } 2>/dev/null || continue
    if is_running "$id" "$start"; then
      kill -s KILL "$id" 2>/dev/null
      clean=
    fi
  done
}

# The kernel takes it away once the last process of its other end is gone.
await_network() {
  clean=yes
  [ ! -e "/sys/class/net/$interface" ] || clean=
}

remove_cgroups() {
  clean=yes
  for group in "/sys/fs/cgroup/$cgroup" /sys/fs/cgroup/*/"$cgroup"; do
    [ -d "$group" ] || continue
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    [ ! -d "$group" ] || clean=
  done
}

remove_folder() {
  clean=yes
  rm -rf --one-file-system "$folder" 2>/dev/null
  [ ! -e "$folder" ] || clean=
}

code=0
for step in kill_all await_network remove_cgroups remove_folder; do
  tries=300
  while $step && [ -z "$clean" ]; do
    tries=$((tries - 1))
    if [ $tries = 0 ]; then
      echo "cluster in $folder: $step did not finish in time" >&2
      code=1
      break
    fi
    sleep 0.05
  done
done
rm -f "$lock"
# Unless other clusters live there.
rmdir "${lock%/*}" 2>/dev/null
exit $code

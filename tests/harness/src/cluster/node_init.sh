# Process 1 of a node: containerd, kubelet and all pods live in its mount and process
# namespaces, and end with it.
#
#   sh -c SCRIPT node-init FOLDER NAME
#
# NAME is what its mounts are known by.

set -e
umask 022
folder=$1 name=$2

# Kubelet wants volumes' mounts to be seen by the pods; nothing of it leaves the namespace.
mount --make-rshared /

# What the node's programs write to fixed places is for the node alone, and in memory.
mount -t tmpfs -o mode=755 "$name" /run
for place in /var/lib /var/log; do
  mkdir -p "/run/over$place" "/run/work$place"
  mount -t overlay -o "lowerdir=$place,upperdir=/run/over$place,workdir=/run/work$place" \
    "$name" "$place"
done

# Kubelet sets these for the whole machine unless they are set already: it is shown files.
mkdir /run/sysctl
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  path=${setting%=*}
  shown=/run/sysctl/$(echo "$path" | tr / .)
  echo "${setting#*=}" >"$shown"
  mount --bind "$shown" "/proc/sys/$path"
done

touch "$folder/run/node.ready"

# Processes whose parent has ended become ours: `wait` notices their end.
while :; do
  sleep infinity &
  wait
done

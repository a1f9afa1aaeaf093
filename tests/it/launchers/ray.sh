# In the place of ray: notes how it is called, and runs what it gets where a file `run` is.
echo "ray $*" >> calls
case "$1 $2" in
    "job submit") if [ -e run ]; then while [ "$1" != -- ]; do shift; done; shift; "$@" > log 2>&1; fi ;;
    "list jobs") echo a note; cat listed ;;
esac

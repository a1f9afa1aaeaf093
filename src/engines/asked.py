"""Stands before each script that the harness asks something: it ends with its caller, and has little time and memory."""

import sys

sys.path[:] = filter(None, sys.path)  # not the working folder

import ctypes
import os
import resource
import signal

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == 1 != CALLER:  # in a container the caller may be process 1
    sys.exit("its caller has ended")


def bounded(memory, seconds):
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (memory if most < 0 else min(memory, most), most))
    signal.setitimer(signal.ITIMER_PROF, seconds)


def trusted():
    """From here on nothing depends on what a user wrote, and PyTorch may be loaded."""
    bounded(64 << 30, 300)


bounded(1 << 30, 15)
signal.alarm(600)

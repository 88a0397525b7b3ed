"""Processes of a campaign write the stacks of all threads to standard error on SIGUSR1."""

import faulthandler
import signal

faulthandler.register(signal.SIGUSR1, all_threads=True)

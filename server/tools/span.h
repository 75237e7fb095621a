// Commands of a service with several devices. Each device has a daemon and a socket of its own, so
// a command goes to one of them, or to each in turn: span.def says which. Single thread.

#ifndef FRMPS_SERVER_TOOLS_SPAN_H
#define FRMPS_SERVER_TOOLS_SPAN_H

struct call;

typedef int command_fn(const struct call *call);

/** Runs a command where it belongs. @call: its arguments are complete. Return: exit code */
int span_run(const struct call *call, command_fn *run);

#endif

// The keeper of the device memory, as the daemon has it: one at a time, started again when it ends. What it has made
// stays: the daemon and the holder have a descriptor of every chunk, executors have it mapped, and memory outlives
// its maker as long as anybody has either (measured: failover/README.md). So its end ends nobody; who
// asks for memory meanwhile waits for the next one. Daemon, loop thread only. (What a keeper does:
// server/keeper/keeper.h.)

#ifndef FRMPS_SERVER_SESSION_KEEPING_H
#define FRMPS_SERVER_SESSION_KEEPING_H

struct daemon;
struct worker;

void keeping_init(struct daemon *daemon);
void keeping_deinit(struct daemon *daemon);

/** Starts a keeper, or sees to it that it is tried again; then daemon->keeper is NULL. */
void keeping_start(struct daemon *daemon);
/** It is ready: whoever waits for memory, or has no guard for want of it, asks it. */
void keeping_ready(struct daemon *daemon);
/** It has been reaped; the service does not stop. */
void keeping_gone(struct daemon *daemon, const struct worker *keeper);

#endif

// The keeper of the device memory, as the daemon has it: one at a time, started again when it ends.
// What it has made stays: the daemon and the holder have a descriptor of every chunk, executors
// have it mapped, and memory outlives its maker as long as anybody has either (measured:
// fault/README.md). So its end ends nobody; who asks for memory meanwhile waits for the next one.
// Daemon, loop thread only. (What a keeper does: server/keeper/keeper.h.)

#ifndef FRMPS_SERVER_SESSION_KEEPING_H
#define FRMPS_SERVER_SESSION_KEEPING_H

#include <stdbool.h>
#include <stddef.h>

struct daemon;
struct worker;

void keeping_init(struct daemon *daemon);
void keeping_deinit(struct daemon *daemon);

/** Starts a keeper, or sees to it that it is tried again; then daemon->keeper is NULL. */
void keeping_start(struct daemon *daemon);
/** It is ready: whoever waits for memory, or has no guard for want of it, asks it. */
void keeping_ready(struct daemon *daemon);
/**
 * It has been reaped, and the service does not leave.
 * Return: false if none can start and the service cannot go on; @ret_text then says why
 */
bool keeping_gone(struct daemon *daemon, const struct worker *keeper, char *ret_text, size_t text_size);

#endif

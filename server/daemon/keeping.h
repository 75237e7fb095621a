// The keeper of the device memory, from the daemon's side: there is one at a time, and the daemon
// starts another when the keeper ends. Memory that a keeper has made stays: the daemon and the
// holder have a descriptor of every chunk, executors have mapped the chunks, and memory outlives
// its maker while any process has either (measured: fault/README.md). So the end of a keeper ends
// no other process; requests for memory meanwhile wait for the next keeper. Daemon, loop thread
// only. (The keeper's own work: server/keeper/keeper.h.)

#ifndef FRMPS_SERVER_DAEMON_KEEPING_H
#define FRMPS_SERVER_DAEMON_KEEPING_H

#include <stdbool.h>
#include <stddef.h>

struct daemon;
struct worker;

void keeping_init(struct daemon *daemon);
void keeping_deinit(struct daemon *daemon);

/** Starts a keeper, or schedules another try; then daemon->keeper is NULL. */
void keeping_start(struct daemon *daemon);
/** The keeper is ready: sends the requests that wait for memory, and requests for missing sinks. */
void keeping_ready(struct daemon *daemon);
/**
 * The keeper has been reaped, and the service does not leave.
 * Return: false if no keeper can start and the service cannot go on; @ret_text then has the reason
 */
bool keeping_gone(struct daemon *daemon, const struct worker *keeper, char *ret_text, size_t text_size);

#endif

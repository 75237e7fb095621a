// Calls back when a descriptor becomes readable: pidfds and listening sockets. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_LOOP_WATCH_H
#define FRMPS_SERVER_LOOP_WATCH_H

struct uv_loop_s;
struct watch;

/**
 * Watches a descriptor, which is taken over and closed with the watch (on failure at once).
 * Return: NULL when out of memory or when the descriptor cannot be polled.
 */
struct watch *watch_new(struct uv_loop_s *loop, int fd, void (*readable)(void *context), void *context);
/** The descriptor, which stays the watch's. */
int watch_fd(const struct watch *watch);
/** Does not look for a while. */
void watch_pause(struct watch *watch);
void watch_resume(struct watch *watch);
/** Stops and closes the descriptor. NULL is fine. Return: NULL. */
struct watch *watch_free(struct watch *watch);

#endif

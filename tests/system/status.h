// What `frmpsctl status --json` says of a test's service.

#ifndef FRMPS_TESTS_SYSTEM_STATUS_H
#define FRMPS_TESTS_SYSTEM_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/lib/service.h"

/** The whole of it; json_decref() it. */
json_t *status_of(const struct service *service);
/** One of its counters, which must exist. */
int64_t status_counter(const struct service *service, const char *name);
/** The process of the daemon, which is not the service's main one. */
pid_t status_daemon(const struct service *service);
/** The process that keeps what outlives the daemon. */
pid_t status_holder(const struct service *service);
/** The process of the active executor, of one domain at most. */
pid_t status_active(const struct service *service);
/** What a status says of a program's session; NULL: it has none. */
const json_t *status_client(const json_t *status, pid_t pid);
/** What the status says of a program's session by that name; -1: it has none. */
long long status_number(const struct service *service, pid_t pid, const char *name);
/** Whether a program has a session in that state. */
bool status_is_in(const struct service *service, pid_t pid, const char *state);
/** The session of a program; 0: it has none. */
long long status_session(const struct service *service, pid_t pid);
/** How often a program passed to another executor. */
long long status_moves(const struct service *service, pid_t pid);
/** Waits until there is a keeper that serves, a minute at most. Return: its process. */
pid_t status_keeper(const struct service *service);
/** Waits until there is no session any more, a minute at most. */
void status_await_no_sessions(const struct service *service);
/** Waits until each domain has its active executor, a warm one that is not behind and no other, a
 * minute at most. Programs are served before that. */
void status_await_executors(const struct service *service);
/** Waits for the same, and until no domain has a program: what a service at rest has. A minute at
 * most. */
void status_await_rest(const struct service *service);
/** Waits for that, and until nobody has device memory any more, a minute at most. (Seen on the host
 * backend only.) */
void status_await_no_memory(const struct service *service);
/** Waits until so many faults have a culprit, a minute at most. */
void status_await_faults(const struct service *service, int number);
/** Kills the active executor while a warm one is there, and waits until that serves.
 * @number: of executors that were replaced, this one included */
void status_replace_active(const struct service *service, int number);
/** service_footprint() of the service at rest. */
void status_footprint(const struct service *service, int *ret_fds, int *ret_threads);
/** Waits until a program has no more than so many bytes of one kind ("memory_bytes", "host_bytes"),
 * a minute at most. */
void status_await_bytes(const struct service *service, pid_t pid, const char *kind, long long most);
/** Waits until the executor has taken so many commands of a program, a minute at most. */
void status_await_commands(const struct service *service, pid_t pid, long long least);

/** Lets a program go on in an executor of its own, as frmpsctl isolate does.
 * @ret_why: why it has none; empty: it has. Return: whether the daemon has answered */
bool status_isolate(const struct service *service, pid_t pid, char *ret_why, size_t bytes);

#endif

// A private service for system tests: its own socket in its own folder, started, watched and
// stopped by the test program. One at a time per test program. Environment read:
//   FRMPS_TEST_SERVER   the frmps-server to start
//   FRMPS_TEST_BACKEND  "host" (default) or "cuda"
//   FRMPS_TEST_DEVICES, FRMPS_TEST_DEVICE   the devices that it serves (key `devices`), and the one
//                       whose daemon answers questions here; unset: all, and the first
//   FRMPS_TEST_LOG      "1": the service's log goes to the test's standard error as well as to its
//                       file

#ifndef FRMPS_TESTS_LIB_SERVICE_H
#define FRMPS_TESTS_LIB_SERVICE_H

#include <stdbool.h>
#include <sys/types.h>

struct service {
	pid_t pid;
	pid_t tee; /* copies its log; 0: nobody does */
	char folder[64];
	char socket[96]; /* of the daemon that answers */
	char config[96];
	char log[96]; /* file with the service's log */
	int crashes;  /* deaths of the daemon by signals other than SIGKILL that the test has made */
};

/** The option --backend of a service, as the environment says. */
const char *service_backend(void);

/**
 * Starts the service and returns once it says that it is ready (the service manager's notification
 * socket). Sets FRMPS_SOCKET for this process and its children.
 * @extra: NULL-terminated further arguments, or NULL
 * Return: false if it ended before it was ready; the reason is in its log, which is printed.
 */
bool service_start(struct service *service, const char *const *extra);

/** The same with a configuration file, whose lines are given. Of lines with the same key in one
 * section the last one counts. */
bool service_start_configured(struct service *service, const char *text);

/** Ends the service with SIGTERM and removes the folder. Return: its exit status, -1 if it was
 * killed or hung, if its daemon crashed,
 * or if a sanitizer spoke in any of its processes. */
int service_stop(struct service *service);

/** One device of a service with several, as a service with one: for the functions that ask. */
struct service service_of_device(const struct service *service, unsigned number);

/** Number of lines of the service's log that hold a text. */
int service_log_count(const struct service *service, const char *text);

/** Waits until the log holds a text at least `count` times; false after `seconds`. */
bool service_log_wait(const struct service *service, const char *text, int count, int seconds);

/** What `frmpsctl status --json` prints, the caller's; NULL if the service does not answer. */
char *service_status(const struct service *service);

/** Children of the process that was started: the daemon, keeper, executors, in order of pid.
 * Return: how many. */
int service_children(const struct service *service, pid_t *ret_pids, int room);

/** The active executor of the first domain; 0 if there is none. */
pid_t service_active(const struct service *service);
/** Kills it. Return: false if there is none. */
bool service_kill_active(const struct service *service);

/** Processor time that all processes of the service have used, clock ticks. */
unsigned long service_ticks(const struct service *service);

/** Open descriptors of one process. */
int service_count_fds(pid_t pid);

/** Descriptors and mappings of the host backend's device memory that the service's processes have
 * together. */
int service_count_chunks(const struct service *service);

/** Open descriptors and threads of the service's processes together: what must not grow. */
void service_footprint(const struct service *service, int *ret_fds, int *ret_threads);

#endif

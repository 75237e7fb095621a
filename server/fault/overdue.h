// Children that hang where nobody else would notice: the keeper, and executors. A child with an
// unanswered request that sends nothing for a long time is terminated. A request to an executor
// that serves may take as long as a kernel runs: so the daemon sends Ping beside such requests. At
// the end of a session and at a halt, executors have less time (promote.c, halt.c,
// session_close.c). Daemon, loop thread only.
//
// Time is counted in looks, so that a service that was stopped as a whole finds everybody alive
// afterwards.

#ifndef FRMPS_SERVER_FAULT_OVERDUE_H
#define FRMPS_SERVER_FAULT_OVERDUE_H

struct crew;
struct worker;

/* Looks. The driver may take minutes for its start on a large machine, or to compile the service's
 * own code; while another executor takes over everybody waits, and that time is not in this
 * limit. */
#define OVERDUE_LOOKS		 60u
#define OVERDUE_LOOKS_ACTIVATING 12u
/* The same for an executor that does not even compute, while everybody waits for that executor. The
 * driver's start and its compiler take processor time. The rest is waiting: for a kernel of the
 * previous executor, which is not there any more; for the driver while it makes another context, a
 * few seconds; for a disk. */
#define OVERDUE_LOOKS_STILL 3u
/* So often a standstill is excused by another context that is being made. The bound keeps a user
 * who starts executors again and again from protecting another user's hung executor. */
#define OVERDUE_EXCUSES_MAX 4u
/* A worker computes if its processor time has grown by this much from one look to the next: a
 * hundredth. Threads that look around now and then have less. */
#define OVERDUE_PROCESSOR_MS 100u
/* The keeper has no context and compiles nothing: making memory takes milliseconds, apart from
 * waiting for the driver as above. */
#define OVERDUE_LOOKS_KEEPER 6u

void overdue_init(struct crew *crew);
void overdue_deinit(struct crew *crew);

/** An executor is up: others may be next in the driver, which makes one context after the other. */
void overdue_came_up(struct crew *crew);

/** The timer, of a crew: looks at every child. */
void overdue_look(void *context);

/** How long a worker has had an unanswered request and sent nothing, in seconds; as old as the
 * latest look. */
unsigned overdue_s(const struct worker *worker);

#endif

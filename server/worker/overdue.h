// Children that hang where nobody else would notice: the keeper, and executors. Whoever says
// nothing for a long time, although something is expected of it, is given up. What an executor that
// serves is asked may take as long as a kernel does: so it is sent Ping beside that. Where a
// session ends or something is halted it has less time (promote.c, halt.c, session_close.c).
// Daemon, loop thread only.
//
// Time is counted in looks, so that a service that was stopped as a whole finds everybody alive
// afterwards.

#ifndef FRMPS_SERVER_WORKER_OVERDUE_H
#define FRMPS_SERVER_WORKER_OVERDUE_H

struct crew;
struct worker;

#define OVERDUE_LOOK_MS 10000u
/* Looks. The driver may take minutes for its start on a large machine, or for code of the
 * service's own that it compiles; while another executor takes over everybody waits, and nothing of
 * that is in it. */
#define OVERDUE_LOOKS		 60u
#define OVERDUE_LOOKS_ACTIVATING 12u
/* The same for an executor that does not even compute, where everybody waits for it. The driver's
 * start and its compiler take processor time. What does not is a wait: for a kernel of the former
 * executor, which is not there any more; for the driver while it makes another context, a few
 * seconds; for a disk. */
#define OVERDUE_LOOKS_STILL 3u
/* So often that may be because of another context. A user who has executors made again and again
 * keeps no hung one of another user's in its place. */
#define OVERDUE_EXCUSES_MAX 4u
/* It computes if it has had this much from one look to the next: a hundredth. Threads that look
 * around now and then have less. */
#define OVERDUE_PROCESSOR_MS 100u
/* The keeper has no context and compiles nothing: it makes memory in milliseconds, and may have to
 * wait for the driver as above. */
#define OVERDUE_LOOKS_KEEPER 6u

void overdue_init(struct crew *crew);
void overdue_deinit(struct crew *crew);

/** Something is about to be expected of it, perhaps beside what is already. */
void overdue_expect(struct worker *worker);
/** It is about to be known that it has answered something. */
void overdue_heard(struct worker *worker);
/** An executor is up: others may be next in the driver, which makes one context after the other. */
void overdue_came_up(struct crew *crew);

/** The timer, of a crew: looks at every child. */
void overdue_look(void *context);

/** For how long a worker has owed an answer and said nothing, in seconds; as old as the latest
 * look. */
unsigned overdue_s(const struct worker *worker);

#endif

// Waking the executor's threads: serving threads (serve.h) and the main thread, which has the board
// (job.h). The file is below all other files of these threads, because any of these may have to
// wake a thread. Any thread.

#include <errno.h>
#include <unistd.h>

#include "server/executor/tenant.h"
#include "server/log.h"
#include "shm/doorbell.h"

void serve_kick(struct tenant *tenant)
{
	doorbell_force(tenant->thread->kick);
}

void serve_kick_all(struct executor *executor)
{
	for (unsigned i = 0; i < executor->pool.count; i++)
		doorbell_force(executor->pool.threads[i].kick);
}

void job_board_kick(struct job_board *board)
{
	uint64_t one = 1;

	/* A full counter means that the thread is kicked already. */
	if (write(board->kick, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("cannot wake the main thread: %m");
}

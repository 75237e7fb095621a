// One session without threads: the test is the client (it writes the ring) and the clock, and turns
// the serving loop by hand. A second executor can take the session over, as after a crash.

#ifndef FRMPS_TESTS_UNIT_SERVER_EXECUTOR_FIXTURE_H
#define FRMPS_TESTS_UNIT_SERVER_EXECUTOR_FIXTURE_H

#include "server/executor/takeover.h"
#include "server/executor/tenant.h"
#include "shm/ring.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fake_backend.h"

/* Not the first window of the grid: an address sanitizer keeps its books there. */
#define FIXTURE_WINDOW UINT64_C(0x200000000000)
#define FIXTURE_DEVICE (UINT64_C(64) << 20) /* bytes of the device part; the first half is mapped */
#define FIXTURE_HOST   (UINT64_C(1) << 20)  /* bytes of the host part; one page is mapped */

struct fixture {
	struct executor executor;
	struct tenant *tenant;
	struct shm_view client; /* the client's mapping */
	struct ring_writer ring;
	uint64_t seq[SHM_STREAMS]; /* the client's numbers */
	uint64_t now;
	int control[2]; /* [0] the executor's end, [1] the daemon's */
	int client_fd, server_fd;
	uint64_t *host; /* the page in the host part */
};

extern struct fixture fixture;
/* What comes with Activate when the former executor could not hand anything over. */

/** Regions of `blocks` journal blocks, served as generation 1. */
void fixture_open(uint32_t blocks);
void fixture_open_default(void);
void fixture_close(void);

/** Forgets the executor's private state, as if it had been killed, and takes the session over as
 * the next one. */
enum takeover_verdict fixture_take_over(enum takeover_recover recover);
/** Only the first half of it: the next executor knows the session but does not serve it. */
void fixture_kill(void);

/** Puts a record on the ring under the stream's next seq. Return: its seq. */
uint64_t fixture_put(enum frmps_op op, uint32_t stream, uint16_t flags, const void *body, uint32_t bytes);
/** Puts a directive on the ring. */
void fixture_direct(enum frmps_op op, uint32_t stream, const void *body, uint32_t bytes);
/** A launch of function 1 with one 8-byte argument, by one thread. */
extern const struct frmps_launch fixture_single;
/** Launches that. Return: its seq. */
uint64_t fixture_launch(uint32_t stream, uint16_t flags, uint8_t argument);
uint64_t fixture_copy(uint32_t stream, uint64_t dst, uint64_t src, uint64_t bytes, uint32_t kind);
uint64_t fixture_set(uint32_t stream, uint64_t dst, uint64_t bytes);
uint64_t fixture_depend(uint32_t stream, uint32_t on, uint64_t seq, uint32_t event);

/** Turns until nothing moves; the clock stands still. */
void fixture_turn(void);
/** Lets time pass, then turns. */
void fixture_pass(uint64_t us);

uint64_t fixture_done(uint32_t stream);
/** Number of Offence messages that the daemon got since the last call. */
unsigned fixture_offences(void);
uint32_t fixture_state(void);

#endif

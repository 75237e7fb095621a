// A backend that does nothing but remember: every piece of work is an entry of a log, and marks
// arrive when the test says so. Images begin with an M, texts with an S. A symbol with a '+' in its
// name comes onto the device when it is looked up: for that a gap is needed. Calls come from the
// executor's threads, so the log has a lock.

#ifndef FRMPS_TESTS_UNIT_SERVER_EXECUTOR_FAKE_BACKEND_H
#define FRMPS_TESTS_UNIT_SERVER_EXECUTOR_FAKE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "server/backend/statics.h"

enum fake_kind {
	FAKE_LAUNCH,
	FAKE_COPY,
	FAKE_SET,
	FAKE_WRITE,
	FAKE_MARK,
	FAKE_RECORD,
	FAKE_WAIT,
	FAKE_SMS_MAKE,	    /* value: the group */
	FAKE_STREAM_CREATE, /* value: where its kernels run */
	FAKE_STREAM_DESTROY,
	FAKE_EVENT_CREATE,
	FAKE_EVENT_DESTROY,
	FAKE_CHUNK_MAP,
	FAKE_CHUNK_UNMAP,
	FAKE_SINK_MAP,
	FAKE_SINK_UNMAP,
	FAKE_CHECK,
	FAKE_MODULE_LOAD,
	FAKE_MODULE_UNLOAD,
	FAKE_SETTLE, /* a function comes onto the device: of a name with a '+' */
	FAKE_REGISTER,
	FAKE_UNREGISTER,
	FAKE_GRAPH_MAKE, /* value: number of nodes; stream: where its kernels run, as a number */
	FAKE_GRAPH_FREE,
	FAKE_GRAPH_CHANGE, /* value: number of the node */
	FAKE_GRAPH_LAUNCH,
	FAKE_THREAD_SHOW,
	FAKE_FENCE,
	FAKE_END,  /* object: the first module, value: how many there are */
	FAKE_LOOK, /* the same */
	FAKE_KINDS
};

struct fake_call {
	enum fake_kind kind;
	void *stream;	/* of work */
	void *object;	/* event, function, address */
	uint64_t seq;	/* flags of a graph; slots of a sink */
	uint64_t value; /* of a mark; first argument byte of a launch; bytes of a sink */
	void *word;	/* of a mark, of a check */
	bool arrived;	/* a mark that was written */
};

#define FAKE_LOG 65536u
/* Where a module's code lies in its session's window, if that is not said. */
#define FAKE_CODE UINT64_C(0x123400)

struct fake {
	struct fake_call log[FAKE_LOG];
	unsigned count;
	CUresult fails[FAKE_KINDS];  /* what the next calls return; 0: success */
	unsigned failed[FAKE_KINDS]; /* calls that did */
	_Atomic bool immediate;	     /* marks arrive at once */
	uint64_t device_word;	     /* what a copy to the host reads */
	uint32_t set_value[64];	     /* of the n-th change of a graph: of its fill */
	bool copies_pend;	     /* stream_query: not ready */
	int32_t priority;	     /* of the stream that was made last */
	CUresult query;		     /* stream_query: this, if not 0 */
	unsigned queries;
	struct backend_time time; /* event_time: of every event, */
	CUresult time_code;	  /* and what it returns */
	bool endless_name;	  /* of function_list: too long for any answer */
	uint32_t kernels; /* function_list: so many, each with a name of 200 letters; 0: "kernel" alone */
	_Atomic unsigned stuck; /* launches and sets wait in their call for it to be 0 */
	struct statics statics; /* of every module */
	bool is_quick;		/* unloading a module waits for nothing */
	uint64_t global_bytes;	/* of every variable; 0: 256 */
	/* How long it takes at least to undo a mapping, or to end a stream, an event or a
	 * graph, and how long all of that has taken. */
	_Atomic uint64_t undo_ns, undoing_ns;
	_Atomic bool can_end;	      /* kernels_end is supported, */
	_Atomic bool ends;	      /* and each call lets the oldest mark arrive */
	_Atomic unsigned end_stuck;   /* each call waits for it to be 0; before it asks, not to be 2 */
	_Atomic bool waits;	      /* what the first call says when it asks */
	void (*_Atomic marked)(void); /* called in the thread that places a mark; NULL: nothing is */
};

extern struct fake fake;
extern const struct backend_ops fake_ops;

void fake_reset(void);
/** The same as fake.fails, beside threads that call. */
void fake_let_fail(enum fake_kind kind, CUresult code);
/** Number of calls of a kind that failed so far. */
unsigned fake_count_failed(enum fake_kind kind);
/** Number of calls of a kind so far. */
unsigned fake_count(enum fake_kind kind);
/** The n-th call of a kind, from 0; NULL if there were not as many. */
const struct fake_call *fake_call(enum fake_kind kind, unsigned n);
/** Lets all marks arrive that were placed. */
void fake_arrive(void);
/** Lets the oldest mark that is under way arrive. Return: whether there was one. */
bool fake_arrive_one(void);
/** Position in the log of the n-th call of a kind; -1 if there were not as many. */
int fake_position(enum fake_kind kind, unsigned n);

#endif

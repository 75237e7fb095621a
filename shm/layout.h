// The two memory regions of a session, and the only structs that live in them.
//
//   client region (memfd, sealed against shrinking and growing; the client writes, executors only
//   read):
//     client_header | ring bytes | arena | client_more
//   server region (memfd; executors write, the client holds a read-only file and can never map it
//   writable):
//     server_header | stream states | timelines, one per executor generation |
//     times of events | journal blocks | a place for each graph, used by those that are changed
//
// Offsets and sizes are fixed by the daemon, published in the handshake, and checked once by
// whoever maps a region (region.h); nobody ever takes an offset from the memory itself. All words
// are native endian: both sides run on one machine. Reserved words are zero. Changing a struct here
// needs a new FRMPS_PROTOCOL_MAJOR.
//
// A session outlives executors. Each executor that serves it is a generation: 1, 2, 3, … A
// generation's GPU work writes completion marks only into that generation's timeline, so nothing
// that an old executor still does can be taken for the new one's progress.

#ifndef FRMPS_SHM_LAYOUT_H
#define FRMPS_SHM_LAYOUT_H

#include <assert.h>
#include <stddef.h>

#include "protocol/command.h"
#include "shm/order.h"

#define SHM_CLIENT_MAGIC UINT32_C(0x6c636d66)
#define SHM_SERVER_MAGIC UINT32_C(0x76736d66)

/* Streams of one session that exist at a time; slot 0 is the client's legacy default stream.
 * Clients use the lowest slots that are free, so what there is for high ones is not touched as a
 * rule. */
#define SHM_STREAMS 65536u
/* Streams whose completion words lie together: executors register one such piece after the other.
 * Clients that know nothing of client_more have the first. */
#define SHM_PIECE 2048u
/* Events of one session that exist at a time. */
#define SHM_EVENTS 65536u
/* Modules of one session that exist at a time; ids are the client's, 1 … SHM_MODULES - 1. */
#define SHM_MODULES 4096u
/* Timelines kept; generation g uses timeline g % SHM_TIMELINES. */
#define SHM_TIMELINES 4u
/* One journal block; the largest record fits. */
#define SHM_BLOCK_BYTES 65536u
/* Journal blocks of a session; memory is only used where written (memfd pages). */
#define SHM_BLOCKS   4096u
#define SHM_NO_BLOCK UINT32_MAX
/* Commands of one stream that may be issued or queued and not done; the client waits beyond it. Its
 * STREAM_DESTROY may be one more. */
#define SHM_STREAM_CREDIT 1024u

/* Place of a graph in the server region: its description as it is now, for executors to come.
 * Graphs whose description has more bytes are not changed. */
#define SHM_GRAPH_BYTES FRMPS_GRAPH_CHANGED_MAX

/* Default sizes, bytes. */
#define SHM_RING_BYTES	(UINT64_C(1) << 20)
#define SHM_ARENA_BYTES (UINT64_C(32) << 20)

/* Stream table entry: what the executor needs to make the stream on first use. Written by the
 * client before the first command that names the slot; the ring's tail publishes it. */
struct shm_stream_entry {
	uint32_t flags;	  /* driver stream flags: 0 or 1 (non-blocking) */
	int32_t priority; /* as given by the program */
	uint32_t reserved[2];
};

/* Host-function words of one stream, written by the client's service thread. */
struct shm_host_entry {
	word64 started; /* seq of the latest host function that was begun: it runs at most once */
	word64 done;	/* seq of the latest host function that returned; pairs with executor/hold.c */
};

struct shm_client_header {
	uint32_t magic;
	uint32_t major;
	uint32_t reserved0[14];
	/* Ring bytes ever written by the client. Written by the submitting thread under the ring
	 * lock; pairs with the executor's acquire in ring_peek(). */
	_Alignas(64) word64 tail;
	uint64_t reserved1[7];
	struct shm_host_entry host[SHM_PIECE];
	struct shm_stream_entry streams[SHM_PIECE];
};

/* The same of the other streams. */
struct shm_client_more {
	struct shm_host_entry host[SHM_STREAMS - SHM_PIECE];
	struct shm_stream_entry streams[SHM_STREAMS - SHM_PIECE];
};

/* What the client may see of one stream, and what a later executor needs to take it over. Executor
 * writes. */
struct shm_stream_state {
	word64 journaled;  /* highest seq copied into the journal */
	word64 issued;	   /* highest seq handed to the driver (set before the call) */
	word64 host_ready; /* highest seq of a host function whose predecessors are done: the client may run
			      it */
	word64 marked; /* highest seq behind which a mark is, or is being put: may be seen in the timeline, and
			      nothing beyond it (set before the call) */
	word32 head_block; /* oldest journal block with commands that are not done, or SHM_NO_BLOCK */
	word32 head_offset;
	word32 tail_block; /* block being filled, or SHM_NO_BLOCK */
	word32 tail_offset;
	word64 untimed; /* highest seq done before the generation began: no executor will publish a time of it any more */
	uint64_t reserved;
};

/* Session state as the client sees it. */
enum shm_session_state {
	SHM_SESSION_RUNNING = 1, /* commands are served */
	SHM_SESSION_HELD = 2,	 /* a promotion is under way: nothing is issued, nothing is lost */
	SHM_SESSION_FAULTED = 3, /* `error` is sticky: every later context call returns it */
	SHM_SESSION_CLOSED = 4,	 /* the service ended the session: protocol error, limit, shutdown */
};

/* Longest time from a fault to its first sign. */
#define SHM_SIGN_NS UINT64_C(1000000000)

/* Bits of shm_server_header.share. */
#define SHM_SHARE_WEIGHT_MASK UINT32_C(0x0000ffff) /* up to SHM_SHARE_WEIGHT_MOST; 0: SHM_SHARE_WEIGHT */
#define SHM_SHARE_SMS_MASK    UINT32_C(0x03ff0000) /* multiprocessors that its kernels may use; 0: all */
#define SHM_SHARE_SMS_SHIFT   16u
#define SHM_SHARE_LENT                                                                                       \
	UINT32_C(0x04000000) /* these are for certain, and it may use more while nobody else does */
#define SHM_SHARE_AWAY	      UINT32_C(0x20000000) /* as paused: its memory is not, or not all, on the device */
#define SHM_SHARE_OFFLINE     UINT32_C(0x40000000) /* sessions without it come first */
#define SHM_SHARE_PAUSED      UINT32_C(0x80000000) /* nothing more goes to the device; what is there ends */
#define SHM_SHARE_WEIGHT      100u
#define SHM_SHARE_WEIGHT_MOST 1000u
/* Offline sessions leave one of so many parts of what is nobody's partition to online ones. */
#define SHM_SHARE_ONLINE_PART 4u

/* A sign of a fault was seen. The rest is for the daemon, should the executor not come to explain
 * it. */
enum shm_doubt {
	SHM_DOUBT = 1,
	SHM_DOUBT_FAULT = 2,  /* it is a fault, and it is not known whose */
	SHM_DOUBT_WORKED = 4, /* the session had something on the device within SHM_SIGN_NS before the sign */
};

struct shm_server_header {
	uint32_t magic;
	uint32_t major;
	uint32_t reserved0[14];
	/* Ring bytes ever consumed. Written by the serving executor thread; pairs with
	 * ring_reserve(). */
	_Alignas(64) word64 head;
	/* Non-zero while the serving thread sleeps: the client rings the doorbell. Protocol in
	 * doorbell.h. */
	word32 asleep;
	/* Bumped and futex-woken when a sleeper should look again (also on every change of
	 * state). */
	word32 wake;
	/* Generation of the executor whose timeline is valid. Released after its timeline holds all
	 * done values. */
	word32 generation;
	/* enum shm_session_state. Written by the executor that serves; by the daemon while none
	 * does, to hold the session, and to end it. FAULTED and CLOSED are never overwritten. */
	word32 state;
	word32 error; /* CUresult when FAULTED or CLOSED; written before state */
	/* Errors of single commands that the driver refused at issue and that could not be returned
	 * at the call: count, and the latest code. The client reports each new count once, at its
	 * next synchronising call. */
	word32 late_errors;
	word32 late_error;
	/* Executors that have served this session, one after the other. */
	word32 servings;
	/* When the session was last seen to have something on the device of this generation:
	 * CLOCK_MONOTONIC, ns, not more than some milliseconds late; 0: never. At a sign of a fault
	 * it says who had work. */
	word64 active;
	/* Of enum shm_doubt. Not zero: the executor has seen a sign of a fault, and what became
	 * done may be a kernel that faulted. */
	word32 doubtful;
	/* How much of the device the session may have, SHM_SHARE_*; 0: what everybody may. The
	 * daemon writes it at any moment, executors read it. Clients read how many multiprocessors
	 * they have. */
	word32 share;
	/* Human-readable reason of FAULTED or CLOSED; written before state. */
	char reason[256];
	/* A bit for each module: kernels of it have been given to a device, and may have left
	 * something behind there that no program can see. Serving and module thread of an executor
	 * write, the next one reads (executor/remains.c). Added at the end of a page that older
	 * clients have mapped as well. */
	word64 ran[SHM_MODULES / 64];
	char reserved1[3072];
	/* ns: device time that was counted for the session, as far as shares were
	 * (executor/share.c). Serving thread of an executor writes, the daemon reads. Added as
	 * well. */
	word64 device_ns;
	/* Units of multiprocessors that are the partition of the session, as bits
	 * (server/backend/backend.h); 0: it has none. The daemon writes it at any moment, executors
	 * read it. Added as well. */
	word64 partition;
	/* Units that are in no partition. As the word before. */
	word64 rest;
	/* Slots from here on never had a command. The serving thread sets it before the first one
	 * of a slot is journaled; the others that look for commands read it. Added as well. */
	word32 streams;
	uint32_t reserved2;
};

/* Completion word of one stream: the highest seq known done. Written by the GPU (mark) or, while
 * nothing of the stream is on the GPU, by the executor. Only ever grows. */
struct shm_timeline_entry {
	word64 done;
	/* Of the first entry of the first timeline: not zero: the session has ended, and loops of
	 * its graphs are to end, whatever their kernels say. Executors write, the device reads. */
	word64 over;
};

/* A piece of a timeline. Behind each other lie the first pieces of all timelines, then the second
 * ones, and so on. */
struct shm_timeline {
	struct shm_timeline_entry stream[SHM_PIECE];
};
#define SHM_TIMELINE_PIECES (SHM_STREAMS / SHM_PIECE * SHM_TIMELINES)

/** The word of a stream. @timeline: the first piece */
static inline struct shm_timeline_entry *shm_timeline_at(struct shm_timeline *timeline, uint32_t slot)
{
	return &timeline[slot / SHM_PIECE * SHM_TIMELINES].stream[slot % SHM_PIECE];
}

/* When the device came to a timed record of an event, ns. Executors write it as soon as they see
 * the record done. The client finds it by the event's number; `record` says of which record it
 * is. */
struct shm_time {
	word64 record; /* shm_place(); 0 while the rest is being written, and before the first */
	word64 epoch;  /* generation whose clock `local` is; 0: there is no time */
	word64 local;  /* times of one epoch are as far apart as the driver says */
	word64 device; /* on the device's timer, which all epochs share; 0: not known */
};

/** A command's place in its session as one number, never 0. */
static inline uint64_t shm_place(uint32_t stream, uint64_t seq)
{
	return (uint64_t)stream << 48 | seq;
}

/* Head of a journal block. Blocks of a stream form a list from head_block to tail_block. */
struct shm_block {
	word32 next; /* SHM_NO_BLOCK at the end */
	uint32_t reserved[3];
	uint8_t records[SHM_BLOCK_BYTES - 16];
};

/*
 * An event of several programs: 256 bytes in a page of pinned memory that the programs which know
 * it share, each at an address of its own. Records are counted: number n is made by taking it from
 * `recorded`, and is done when its place, n % SHM_SHARED_RECORDS, says so. The device of the
 * recording program writes that, in stream order; the daemon does for a program that has ended.
 * Nothing here is trusted: a program that writes nonsense keeps those waiting, or lets them go,
 * that share the event.
 */
#define SHM_SHARED_RECORDS 15u
struct shm_shared_record {
	word64 done;	/* number of the latest record of this place that is over */
	word64 session; /* whose latest record it is */
};
struct shm_shared_event {
	word64 recorded; /* number of the latest record; 0: none */
	uint64_t reserved;
	struct shm_shared_record records[SHM_SHARED_RECORDS];
};
#define SHM_SHARED_PAGE_BYTES  4096u
#define SHM_SHARED_PAGE_EVENTS (SHM_SHARED_PAGE_BYTES / sizeof(struct shm_shared_event))

static_assert(sizeof(struct shm_shared_event) == 256, "shared by programs of different ages");
static_assert(sizeof(struct shm_stream_entry) == 16, "part of the ABI");
static_assert(sizeof(struct shm_host_entry) == 16, "part of the ABI");
static_assert(offsetof(struct shm_client_header, tail) == 64, "own cache line");
static_assert(offsetof(struct shm_client_header, host) == 128, "part of the ABI");
static_assert(sizeof(struct shm_client_header) == 128 + SHM_PIECE * 32, "part of the ABI");
static_assert(sizeof(struct shm_client_more) == (SHM_STREAMS - SHM_PIECE) * 32, "part of the ABI");
static_assert(sizeof(struct shm_stream_state) == 64, "one cache line per stream");
static_assert(offsetof(struct shm_server_header, head) == 64, "own cache line");
static_assert(offsetof(struct shm_server_header, reason) == 120, "part of the ABI");
static_assert(offsetof(struct shm_server_header, ran) == 376, "part of the ABI");
static_assert(offsetof(struct shm_server_header, device_ns) == 3960, "part of the ABI");
static_assert(offsetof(struct shm_server_header, partition) == 3968, "part of the ABI");
static_assert(offsetof(struct shm_server_header, rest) == 3976, "part of the ABI");
static_assert(offsetof(struct shm_server_header, streams) == 3984, "part of the ABI");
static_assert(sizeof(struct shm_server_header) <= 4096, "no more than a page: the states are behind it");
static_assert(sizeof(struct shm_timeline) == SHM_PIECE * 16, "part of the ABI");
static_assert(SHM_STREAMS % SHM_PIECE == 0, "whole pieces");
static_assert(SHM_STREAMS - 1 <= UINT64_MAX >> 48, "shm_place()");
static_assert(sizeof(struct shm_time) == 32, "part of the ABI");
static_assert(sizeof(struct shm_block) == SHM_BLOCK_BYTES, "part of the ABI");

#endif

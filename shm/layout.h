// The two memory regions of a session, and the only structs that live in them.
//
//   client region (memfd, sealed against shrinking and growing; the client writes, executors only
//   read):
//     client_header | ring bytes | arena | client_more
//   server region (memfd, sealed against shrinking; executors write, the client holds a read-only
//   file and can never map it writable):
//     server_header | stream states | timelines, one per executor generation |
//     times of events | journal blocks | places of graphs, by their ids
//
// The executor of a changed graph makes the file as long as the graph's place needs. So a file has
// few holes: CRIU, which saves a process, looks at each page of a hole.
//
// The daemon fixes offsets and sizes and publishes these in the handshake; each process checks them
// once when it maps a region (region.h), and never reads an offset from the memory itself. All
// words are native endian: both sides run on the same machine. Reserved words are zero. Changing a
// struct here needs a new FRMPS_PROTOCOL_MAJOR.
//
// A session outlives executors. Each executor of a session is a generation: 1, 2, 3, … A
// generation's GPU work writes completion marks only into that generation's timeline, so late work
// of an old executor never counts as progress of the new executor.

#ifndef FRMPS_SHM_LAYOUT_H
#define FRMPS_SHM_LAYOUT_H

#include <assert.h>
#include <stddef.h>

#include "protocol/command.h"
#include "shm/order.h"

#define SHM_CLIENT_MAGIC UINT32_C(0x6c636d66)
#define SHM_SERVER_MAGIC UINT32_C(0x76736d66)

/* Most streams of a session at a time; slot 0 is the client's legacy default stream. Clients use
 * the lowest free slots, so memory of high slots is not touched as a rule. */
#define SHM_STREAMS 65536u
/* Streams whose completion words lie together: executors register one such piece after the other.
 * Clients without client_more have the first piece. */
#define SHM_PIECE 2048u
/* Most events of a session at a time; shm_view_events() has how many there is room for. */
#define SHM_EVENTS 262144u
/* Most modules of a session at a time; the client chooses the ids, 1 … SHM_MODULES - 1. */
#define SHM_MODULES 4096u
/* Number of timelines; generation g uses timeline g % SHM_TIMELINES. */
#define SHM_TIMELINES 4u
/* Bytes of a journal block; the largest record fits. */
#define SHM_BLOCK_BYTES 65536u
/* Journal blocks of a session; only written blocks use memory (memfd pages). */
#define SHM_BLOCKS   4096u
#define SHM_NO_BLOCK UINT32_MAX
/* Most commands of a stream that may be issued or queued and not done; at this limit the client
 * waits. The stream's STREAM_DESTROY may exceed it by 1. */
#define SHM_STREAM_CREDIT 1024u

/* Bytes of a graph's place in the server region: its current description, for later executors.
 * Graphs with a longer description cannot be changed. */
#define SHM_GRAPH_BYTES FRMPS_GRAPH_CHANGED_MAX

/* Default sizes, bytes. */
#define SHM_RING_BYTES	(UINT64_C(1) << 20)
#define SHM_ARENA_BYTES (UINT64_C(32) << 20)

/* A copy names bytes of one part of the arena, counted from its beginning: executors register the
 * arena in such parts, or, where that would be more than 64, in larger ones. */
#define SHM_ARENA_PART_BYTES (UINT64_C(2) << 20)

/* Stream table entry: the executor makes the stream from it at the first use. The client writes it
 * before the first command that names the slot; the ring's tail publishes the entry. The priority
 * may change later. */
struct shm_stream_entry {
	uint32_t flags;	  /* driver stream flags: 0 or 1 (non-blocking) */
	int32_t priority; /* as given by the program */
	/* The multiprocessors of its kernels, of those that the session has: bit i: the i-th unit
	 * of these; the bit behind the last unit: the rest. 0: all. */
	uint64_t part;
};

/* Host-function words of a stream, written by the client's service thread. */
struct shm_host_entry {
	word64 started; /* seq of the latest host function that was begun: each runs at most once */
	word64 done;	/* seq of the latest host function that returned; pairs with executor/hold.c */
};

struct shm_client_header {
	uint32_t magic;
	uint32_t major;
	uint32_t reserved0[14];
	/* Ring bytes ever written by the client. The submitting thread writes under the ring lock;
	 * pairs with the executor's acquire in ring_peek(). */
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

/* State of a stream for the client, and for a later executor that takes the stream over. The
 * executor writes. */
struct shm_stream_state {
	word64 journaled;  /* highest seq copied into the journal */
	word64 issued;	   /* highest seq handed to the driver (set before the call) */
	word64 host_ready; /* highest seq of a host function that is ready: its predecessors are done */
	word64 marked;	   /* highest seq with a mark behind it, set before the mark: the timeline's bound */
	word32 head_block; /* oldest journal block with commands that are not done, or SHM_NO_BLOCK */
	word32 head_offset;
	word32 tail_block; /* block being filled, or SHM_NO_BLOCK */
	word32 tail_offset;
	word64 untimed; /* highest seq done before the generation began: its time will not be published */
	uint64_t reserved;
};

/* Session state for the client. */
enum shm_session_state {
	SHM_SESSION_RUNNING = 1, /* commands are served */
	SHM_SESSION_HELD = 2,	 /* a promotion is in progress: nothing is issued, nothing is lost */
	SHM_SESSION_FAULTED = 3, /* `error` is sticky: every later context call returns it */
	SHM_SESSION_CLOSED = 4,	 /* the service ended the session: protocol error, limit, shutdown */
};

/* Longest time from a fault to its first sign. */
#define SHM_SIGN_NS UINT64_C(1000000000)

/* Bits of shm_server_header.share. */
#define SHM_SHARE_WEIGHT_MASK UINT32_C(0x0000ffff) /* up to SHM_SHARE_WEIGHT_MOST; 0: SHM_SHARE_WEIGHT */
#define SHM_SHARE_SMS_MASK    UINT32_C(0x03ff0000) /* multiprocessors of the session's kernels; 0: all */
#define SHM_SHARE_SMS_SHIFT   16u
#define SHM_SHARE_LENT                                                                                       \
	UINT32_C(0x04000000) /* these are guaranteed; the session may use more while no other session does */
#define SHM_SHARE_AWAY	      UINT32_C(0x20000000) /* as paused: not all of its memory is on the device */
#define SHM_SHARE_OFFLINE     UINT32_C(0x40000000) /* sessions without this bit come first */
#define SHM_SHARE_PAUSED      UINT32_C(0x80000000) /* nothing more goes to the device; its work there goes on */
#define SHM_SHARE_WEIGHT      100u
#define SHM_SHARE_WEIGHT_MOST 1000u
/* Offline sessions leave 1/SHM_SHARE_ONLINE_PART of the unpartitioned multiprocessors to online
 * sessions. */
#define SHM_SHARE_ONLINE_PART 4u

/* A sign of a fault was seen. The other bits are for the daemon, in case the executor dies before
 * its report. */
enum shm_doubt {
	SHM_DOUBT = 1,
	SHM_DOUBT_FAULT = 2,  /* a fault of an unknown session */
	SHM_DOUBT_WORKED = 4, /* the session had work on the device within SHM_SIGN_NS before the sign */
};

struct shm_server_header {
	uint32_t magic;
	uint32_t major;
	uint32_t reserved0[14];
	/* Ring bytes ever consumed. The serving executor thread writes; pairs with
	 * ring_reserve_slow(). */
	_Alignas(64) word64 head;
	/* Non-zero while the serving thread sleeps: the client rings the doorbell. Protocol in
	 * doorbell.h. */
	word32 asleep;
	/* Incremented and futex-woken when sleepers should check again (also on every change of
	 * state). */
	word32 wake;
	/* Generation of the executor whose timeline is valid. Released after its timeline holds all
	 * done values. */
	word32 generation;
	/* enum shm_session_state. The serving executor writes; the daemon writes while there is
	 * none, to hold the session, and to end it. FAULTED and CLOSED are never overwritten. */
	word32 state;
	word32 error; /* CUresult when FAULTED or CLOSED; written before state */
	/* Errors of single commands that the driver refused at issue and that the call could not
	 * return: count, and the latest code. The client reports each new count once, at its next
	 * synchronising call. */
	word32 late_errors;
	word32 late_error;
	/* Number of executors that have served this session. */
	word32 servings;
	/* The latest time at which the session had work on the device of this generation:
	 * CLOCK_MONOTONIC, ns, at most some milliseconds late; 0: never. At a sign of a fault the
	 * time shows which sessions had work. */
	word64 active;
	/* enum shm_doubt. Not zero: the executor has seen a sign of a fault, and a command that
	 * became done may be a kernel that faulted. */
	word32 doubtful;
	/* The session's share of the device, SHM_SHARE_*; 0: the default. The daemon writes at any
	 * moment, executors read. Clients read their number of multiprocessors. */
	word32 share;
	/* Human-readable reason of FAULTED or CLOSED; written before state. */
	char reason[256];
	/* A bit for each module: a device has got kernels of the module, which may have left
	 * residual state there that no program can see. Serving and module thread of an executor
	 * write, the next executor reads (executor/remains.c). Added at the end of a page that
	 * older clients have mapped as well. */
	word64 ran[SHM_MODULES / 64];
	char reserved1[3072];
	/* ns: device time that was charged to the session, as far as shares were
	 * (executor/share.c). Serving thread of an executor writes, the daemon reads. Added later,
	 * too. */
	word64 device_ns;
	/* The session's partition: units of multiprocessors, as bits (server/backend/backend.h); 0:
	 * none. The daemon writes at any moment, executors read. Added later, too. */
	word64 partition;
	/* Units in no partition. Written and read as `partition`. */
	word64 rest;
	/* Slots from here on never had a command. The serving thread sets it before the first one
	 * of a slot is journaled; the others that look for commands read it. Added as well. */
	word32 streams;
	uint32_t reserved2;
};

/* Completion word of a stream: the highest seq known done. The GPU writes (mark) or, while no work
 * of the stream is on the GPU, the executor. Only ever grows. */
struct shm_timeline_entry {
	word64 done;
	/* Used in the first entry of the first timeline. Not zero: the session has ended, and loops
	 * of its graphs must end, whatever their kernels write. Executors write, the device
	 * reads. */
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

/* Device time of a timed record of an event, ns. An executor writes it after it has seen the record
 * done. The client finds the entry by the event's number; `record` identifies the record. */
struct shm_time {
	word64 record; /* shm_place(); 0 before the first record, and while an executor writes the rest */
	word64 epoch;  /* generation whose clock `local` is; 0: no time is known */
	word64 local;  /* times of the same epoch have the driver's distance */
	word64 device; /* the device's timer, common to all epochs; 0: not known */
};

/** A command's place in its session as a single number, never 0. */
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
 * An event of several programs: 256 bytes in a page of pinned memory that these programs share,
 * each at its own address. Records are numbered: a program takes number n from `recorded`; record n
 * is done when its place, n % SHM_SHARED_RECORDS, has that number. The device of the recording
 * program writes the place, in stream order; the daemon does so for a program that has ended. No
 * process trusts this memory: a program that writes garbage delays or releases only programs that
 * share the event.
 */
#define SHM_SHARED_RECORDS 15u
struct shm_shared_record {
	word64 done;	/* number of the latest finished record of this place */
	word64 session; /* the session of this place's latest record */
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

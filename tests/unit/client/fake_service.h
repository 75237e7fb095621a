// A service, a ring and one device for tests of modules, kernels and launches. One test runs per
// process, so nothing is ever reset.
//
// Every module has the kernels "add" (parameters of 8, 4 and, behind a gap, 8 bytes), "plain"
// (none) and "odd" (3, 16 and 1 bytes), and the global "counter".

#ifndef FRMPS_TESTS_UNIT_CLIENT_FAKE_SERVICE_H
#define FRMPS_TESTS_UNIT_CLIENT_FAKE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

#define FAKE_CONTEXT ((CUcontext)0x1000)
#define FAKE_GLOBAL  UINT64_C(0x7f0000001000)
/* Where the memory for variables is. */
#define FAKE_BLOCK	UINT64_C(0x540000000200)
#define FAKE_MANAGED	UINT64_C(0x550000000000)
#define FAKE_SHARED	49152
#define FAKE_PROCESSORS 132

struct fake_service {
	/* What it answers. */
	CUresult load_code, unload_code, enter_code, context_code;
	const char *text;	/* log of a load */
	bool nonsense;		/* descriptions of kernels are cut short */
	uint64_t listed;	/* number of kernels that is said; 0: the true one */
	uint64_t sms;		/* that answers about occupancy are for */
	uint32_t page;		/* names in one answer, at most; 0: all */
	uint32_t registers;	/* of every kernel */
	int32_t kernel_threads; /* of every kernel */
	uint64_t only_block[3]; /* of every kernel; 0: any */
	uint64_t cluster_most;	/* of every kernel; 0: the device's */
	uint64_t text_uses;	/* what kernels of a loaded module do with the ring (shm/text.h) */
	CUresult text_code;	/* of making room for that */
	size_t text_limit;	/* of the current context */
	uint64_t variables;	/* bytes that a module wants for its own; 0: none */
	bool managed;		/* they are to be in managed memory */
	CUresult block_code;	/* of making room for them */
	bool keeps_variables;	/* although it was given room */
	unsigned forgets;	/* files of loads that it does not know any more */

	/* What it was asked. */
	unsigned calls[WIRE_TYPES];
	struct wire_set_function set;
	uint32_t module, kind, options;
	uint64_t block_bytes;	/* of the block that is there; 0: none */
	uint64_t managed_bytes; /* of the one in managed memory */
	uint64_t block;		/* where it was told to put variables */
	uint64_t bytes;
	int seals;
	unsigned texts; /* rings made */
	unsigned small_texts;
	uint64_t text_bytes;
	unsigned loaded[4096];		      /* modules by id */
	unsigned drains;		      /* wait_all() */
	unsigned ring_drains;		      /* submit_drain() */
	unsigned set_drains, set_ring_drains; /* the same when the latest SetFunction came */

	/* Ranges. */
	uint64_t range_address, range_bytes;
	void *range_owner;

	/* The ring: the latest record. */
	unsigned launches;
	struct frmps_head head;
	_Alignas(16) uint8_t body[FRMPS_RECORD_MAX];
	uint32_t body_bytes;
	CUresult submit_code;
	bool per_thread;

	/* Events: what a launch may do with one, and how many were recorded behind launches. */
	CUresult event_code;
	unsigned records;
};

extern struct fake_service fake;

#endif

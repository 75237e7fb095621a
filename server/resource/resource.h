// Resources of a session: memory, modules, graphs and more. A file of this room has all about one
// kind: the checks of its requests, and of an executor's answers, before the daemon acts on them;
// the entry that a success makes, changes or drops; the request by which another executor makes the
// resource once more. resources.def has a row for each request. The list of entries is
// session/holdings.h. Daemon, loop thread only.

#ifndef FRMPS_SERVER_RESOURCE_RESOURCE_H
#define FRMPS_SERVER_RESOURCE_RESOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct check;
struct chunk;
struct holding;
struct holdings;
struct kept_holding;
struct packet;
struct record;
struct request;
struct shared_fd;

/* A kind of request about a resource. A member that is not set means that there is nothing to
 * do. */
struct resource {
	/** Checks the request; NULL: what it drops must be there. Return: 0 or CHECK_E_* */
	int (*check)(struct check *check, const struct wire_message *message);
	/** Adds fields that only the daemon knows: the chunk behind a handle or an array, windows.
	 * Twice is fine. Return: CUDA_SUCCESS, or the error for the program */
	CUresult (*prepare)(struct request *request);
	/** The flaw of an answer with success and values (static text), or NULL. */
	const char *(*flaw)(const struct request *request, const struct wire_u64s *values);

	/* Of a request that makes an entry. */
	/** Fills in an entry of the request's type; its list is set. Return: 0 or -ENOMEM */
	int (*fill)(
		struct holding *entry, const struct wire_message *message, const struct wire_u64s *values);
	/** The request that makes the resource once more: all but type and session. Points into the
	 * entry */
	void (*again)(const struct holding *entry, struct wire_message *ret_message);
	/** Most that the request adds to memory of the service if it succeeds, bytes; NULL: as
	 * options may take. */
	uint64_t (*cost)(const struct wire_message *message);
	/** The entry for the same thing, which is changed, or left as it is. Return: NULL if there
	 * is none */
	struct holding *(*find_same)(const struct holdings *holdings, const struct wire_message *message);
	void (*change)(struct holdings *holdings, struct holding *entry, const struct wire_message *message);
	uint32_t ids;	      /* ids are below this; 0: there are none */
	uint32_t form_bytes;  /* of the entry's description; 0: none */
	bool is_named;	      /* the entry has a name */
	bool costs_no_record; /* the cost is a file's */

	/* Of a request that makes or drops an entry. */
	/** True if the resource exists; NULL: it may be noted any number of times. */
	bool (*has)(const struct holdings *holdings, const struct wire_message *message);
	/** Removes the entries that the request drops. */
	void (*drop)(struct holdings *holdings, const struct wire_message *message);
};

#define RESOURCE(type, kind) extern const struct resource kind;
#include "server/resource/resources.def"
#undef RESOURCE

/**
 * Checks a request.
 * @message: a message that a program may send (message_allowed())
 * Return: 0 or CHECK_E_*
 */
int check_request(struct check *check, const struct wire_message *message);

/** Adds fields that only the daemon knows to a request. Twice is fine. Return: CUDA_SUCCESS, or
 * the error for the program */
CUresult resource_prepare(struct request *request);

/**
 * Checks an executor's answer. An executor runs code of programs, so the daemon checks answers as
 * it checks requests: a number that becomes an index, a size or a limit must be possible for a
 * sound executor. An answer without values is always fine: a caller that needs a value then has
 * none.
 * Return: the flaw (static text), or NULL
 */
const char *resource_flaw(
	const struct request *request, const struct wire_reply *reply, const struct packet *packet);

/**
 * Notes a request that succeeded.
 * @message: a checked request that makes or changes a resource; the window of RESERVE_WINDOW was
 * taken and belongs to the entry
 * @values: the reply's
 * @fd: image or host memory, NULL otherwise; @chunk: device memory; both are referenced
 * @ret_entry: for the standbys; NULL if they have the entry already (a global requested twice)
 * Return: 0 or -ENOMEM
 */
int resource_note(struct holdings *holdings, const struct wire_message *message,
	const struct wire_u64s *values, struct shared_fd *fd, struct chunk *chunk,
	struct holding **ret_entry);

/** True if the resource that a request would make, or drop, exists. For requests that are answered
 * a second time. */
bool resource_has(const struct holdings *holdings, const struct wire_message *message);

/**
 * Makes an entry from its record, whose payload is @kept, @bytes long.
 * @fd, @chunk: taken over
 * Return: 0, or -EINVAL: then nothing is taken over
 */
int resource_adopt(struct holdings *holdings, const struct record *record, const struct kept_holding *kept,
	size_t bytes, struct shared_fd *fd, struct chunk *chunk);

/** Removes the entries that UnloadModule (with all entries found in the module), DropGraph,
 * DropArray (with the objects over the array; the array's memory stays), DropObject or
 * ReleaseWindow names, if there are any. */
void resource_drop(struct holdings *holdings, const struct wire_message *message);

/** The request that makes the resource once more. Points into the entry; id is not set. */
void resource_again(const struct holding *entry, uint64_t session, struct wire_message *ret_message);

/** Longest payload of the record that a request makes if it succeeds, bytes. */
size_t resource_record_cost(const struct wire_message *message);

#endif

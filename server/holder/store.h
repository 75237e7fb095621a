// The daemon's interface to everything that outlives the daemon: descriptors deposited with the
// holder, and records in shared memory. Daemon, loop thread only. Every function takes a NULL
// store, which preserves nothing.
//
// A record is a private struct of a few hundred bytes under a type and a key. A record never
// changes: a new record replaces the old. All that a turn of the loop puts, drops, forgets and
// settles counts from store_commit() on, all of it at once: a daemon that dies at any instant
// leaves the state at the end of a turn. Deposits alone count at once: nothing names them before
// the commit. (The surviving medium is memory, so this is about the order of stores of one thread,
// not about disks or other processors.)

#ifndef FRMPS_SERVER_HOLDER_STORE_H
#define FRMPS_SERVER_HOLDER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct legacy;
struct record;
struct store;

enum record_type {
	RECORD_NONE,
	RECORD_SERVICE,
	RECORD_DEVICE,
	RECORD_DOMAIN,
	RECORD_WORKER,
	RECORD_SESSION,
	RECORD_HOLDING,
	RECORD_DOOMED,
	RECORD_UNPINNING,
	RECORD_FAULT_HISTORY,
	RECORD_RULES,
	RECORD_EVENT,
};

/* Longest payload, bytes. */
#define RECORD_MAX 65000u

/* The most that a store can ever hold, bytes; a record beyond that is the end of the daemon, and of
 * each following daemon. A caller that records at a program's wish asks before
 * (store_has_room()). */
#define STORE_BYTES (UINT64_C(16) << 30)

/**
 * Maps the records of the legacy.
 * Return: NULL after an error line if the records are unavailable or damaged.
 */
struct store *store_open(const struct legacy *legacy);
/** Releases the mapping and the socket; records and deposits stay. Return: NULL. */
struct store *store_close(struct store *store);

/**
 * Deposits a copy of a descriptor. After the return, a death of the daemon does not lose the
 * descriptor. Waits for a holder that does not read its messages, a second at most, and not again
 * until the holder reads.
 * @ret_key: never 0; 0 without a store, and on failure
 * Return: 0, -EMFILE: the holder has no room for more, or -EAGAIN: the holder does not read
 */
int store_deposit(struct store *store, int fd, uint32_t *ret_key);
/** Has the holder close the descriptor under a key with the commit; 0 is fine, and so is twice in a
 * turn. Records of the commit may not name the key any more. Never waits. */
void store_forget(struct store *store, uint32_t key);

/**
 * Hands over the legacy's descriptor under a key: the caller owns it from now on. Each can be taken
 * once, its key stays deposited. Return: -1 if there is none.
 */
int store_take(struct store *store, uint32_t key);
/**
 * Deposits a descriptor of another daemon, which is taken over, for store_take() as if it were the
 * legacy's.
 * @ret_key: 0 on failure
 * Return: as store_deposit(), or -ENOMEM
 */
int store_receive(struct store *store, int fd, uint32_t *ret_key);
/** Closes and forgets a descriptor for store_take() that nobody took. */
void store_return(struct store *store, uint32_t key);
/** Closes and forgets the legacy's descriptors that nobody took. */
void store_close_rest(struct store *store);

/** A number greater than every number before, over all lives. For keys. */
uint64_t store_serial(struct store *store);

/**
 * Puts a record, in place of `old` if that is not NULL; one that says the same stays.
 * Return: the record, for store_drop() and the next store_put(); NULL without a store.
 */
const struct record *store_put(struct store *store, const struct record *old, enum record_type type,
	uint64_t key, const void *payload, size_t bytes);
/** Puts the only record of its type, in place of the previous record. */
void store_put_single(struct store *store, enum record_type type, const void *payload, size_t bytes);
/** The store's memory for a record with so long a payload, bytes. */
uint64_t store_share(size_t bytes);
/** True if the store has room for another such record without growing beyond `most` bytes. If so,
 * the next record finds that room. */
bool store_has_room(struct store *store, size_t bytes, uint64_t most);
/** NULL is fine. */
void store_drop(struct store *store, const struct record *record);

/** The records of a type, by key; the list is the caller's to free. Return: the number of
 * records. */
size_t store_list(struct store *store, enum record_type type, const struct record ***ret_records);
/** Copies a payload of exactly this size, or its beginning. Return: false if the payload is
 * shorter. */
bool record_read(const struct record *record, void *ret_payload, size_t bytes);
uint64_t record_key(const struct record *record);
/** Makes a flag of a record's payload false if its byte is neither true nor false. */
void record_tidy_flag(bool *flag);
/** The payload in place, valid until the record is dropped. */
const void *record_payload(const struct record *record, size_t *ret_bytes);

/** A message of the holder. */
enum store_event { STORE_NOTHING, STORE_ENDED, STORE_STOP, STORE_SYNCED };
/** The socket for these messages, for polling. */
int store_socket(const struct store *store);
/** @ret_pid, @ret_status: for STORE_ENDED. @ret_count: for STORE_SYNCED, the number of store_sync()
 * calls that are answered */
enum store_event store_hear(struct store *store, pid_t *ret_pid, int *ret_status, unsigned *ret_count);
/** The daemon has dealt with the end of a process, in the order of the reports. With the commit. */
void store_settle(struct store *store);
/**
 * Asks with the commit for STORE_SYNCED: then the holder has closed everything that was forgotten.
 * Return: false without a store: nobody has to close anything
 */
bool store_sync(struct store *store);
/** Everything is adopted. */
void store_up(struct store *store);

/** Calls act(context) behind the commit: for what no record may name when it is done, as the
 * end of a file. Without a store, at once. */
void store_then(struct store *store, void (*act)(void *context), void *context);

/** Makes everything since the last commit count, and then gives the holder its orders. */
void store_commit(struct store *store);

#endif

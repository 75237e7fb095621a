// Memory of one device on another device of the service. Each device has a daemon of its own. A
// program's token names the device that has the memory (WIRE_TOKEN_DEVICE). The daemon that gets
// such a token from another device connects to that device's daemon:
//
//   borrower: lending_borrow ──LendMemory──► lender: lending_lend
//             chunk, mapped like any other ◄──── the memory's descriptor, and the offer's file
//
// The memory counts on its own device alone. The lender never empties memory that it has lent. When
// its last owner there ends, the memory is unheld (session/export.h) for as long as the borrower
// has the file open. A lender that dies takes nothing from the borrower: descriptors and mappings
// keep the memory.
//
// A daemon lends to its own user alone, and to programs of the user whose memory it is. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_DAEMON_LENDING_H
#define FRMPS_SERVER_DAEMON_LENDING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol/cuda_abi.h"

struct chunk;
struct connection;
struct daemon;
struct request;
struct wire_message;

/** The end of a borrowing that was not forgotten. @chunk: a reference, the request's; NULL without
 * success. @bytes: of the memory */
typedef void lending_end_fn(struct request *request, CUresult code, struct chunk *chunk, uint64_t bytes);

/** True if a token names another device of the service. */
bool lending_is_elsewhere(const struct daemon *daemon, const uint64_t token[2]);

/** Asks for the memory of an ImportMemory that lending_is_elsewhere(). `end` may be called before
 * this returns. CUDA_ERROR_NOT_READY: the other daemon does not answer */
void lending_borrow(struct request *request, lending_end_fn *end);
/** The request is over. */
void lending_forget(struct request *request);

/** Answers a LendMemory. @uid: of the sender */
void lending_lend(
	struct daemon *daemon, struct connection *connection, uid_t uid, const struct wire_message *message);

#endif

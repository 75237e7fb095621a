// Memory of one device on another device of the service. Each device has a daemon of its own. A
// program's token names the device where the memory was made (WIRE_TOKEN_DEVICE); its programs may
// have gone on on another one since (depart.h). The daemon that gets a token of memory that it does
// not have asks the daemon of that device, and then the others:
//
//   borrower: lending_borrow ──LendMemory──► lender: lending_lend
//             chunk, mapped like any other ◄──── the memory's descriptor, and the offer's file
//
// Memory that is away, or on its way to another device, is called back, and the borrower asks all
// over again, for LENDING_PATIENCE_MS after the begin of its program's request.
//
// The memory counts on its own device alone. The lender never empties memory that is lent: for as
// long as the borrower has the offer's file open. When the last owner there ends, the memory is
// unheld (session/export.h) for so long. A lender that dies takes nothing from the borrower:
// descriptors and mappings keep the memory. But the file ends with the lender: what was lent then
// counts as lent to its end.
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

/* For one answer, and for memory to come back. A daemon that has died is back within a second. */
#define LENDING_PATIENCE_MS 10000u

/** True if another device of the service may have the memory behind a token, which is not here. */
bool lending_may_help(const struct daemon *daemon, const uint64_t token[2]);

/** Asks for the memory of an ImportMemory whose memory is not here. `end` may be called before this
 * returns. CUDA_ERROR_NOT_READY: another daemon does not answer, or the memory stays away */
void lending_borrow(struct request *request, lending_end_fn *end);
/** The request is over. */
void lending_forget(struct request *request);

/** Answers a LendMemory. @uid: of the sender */
void lending_lend(
	struct daemon *daemon, struct connection *connection, uid_t uid, const struct wire_message *message);

#endif

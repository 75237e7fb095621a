// The CUDA runtime asks the driver to prove that both see the same process and the same devices:
// the driver returns a keyed digest of facts that the runtime knows as well, and the runtime
// refuses to start on a difference (error 103). The digest is HMAC (RFC 2104) over MD2 (RFC 1319).
// The digest protects nothing; it only has to be equal.
//
// Pure functions, no state; any thread.

#ifndef FRMPS_CLIENT_LINK_INTEGRITY_H
#define FRMPS_CLIENT_LINK_INTEGRITY_H

#include <stddef.h>
#include <stdint.h>

#define INTEGRITY_DIGEST_BYTES 16

struct integrity_device {
	uint8_t uuid[16];
	int32_t domain, bus, device;
};

/* Facts that both sides know. Addresses are those of the tables and the function that the runtime
 * got from this library. */
struct integrity_facts {
	uint32_t driver_version; /* the result of cuDriverGetVersion */
	uint32_t version;	 /* the question's version argument */
	uint32_t pid;
	uint32_t thread; /* low half of pthread_self() */
	uint64_t runtime_table;
	uint64_t integrity_table;
	uint64_t integrity_function;
	uint64_t seconds; /* the question's time argument */
};

/*
 * The answer to a question. `devices`: all that the program sees, in the order of their ordinals.
 * Versions whose last decimal digit is 0 or 1 have a fixed answer that depends on nothing else.
 */
void integrity_answer(const struct integrity_facts *facts, const struct integrity_device *devices,
	size_t device_count, uint8_t ret_digest[INTEGRITY_DIGEST_BYTES]);

/* MD2 of a buffer; exported for its tests. */
void integrity_md2(const void *data, size_t length, uint8_t ret_digest[INTEGRITY_DIGEST_BYTES]);

#endif

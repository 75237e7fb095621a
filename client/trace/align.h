// Translates the device's clock to the host's. The shim knows when it gave the device a record, and
// the device's time of that record. The record cannot be earlier, so the smallest difference that
// was seen counts. That difference is wrong by the shortest way to the device, some microseconds.
// The clocks drift, and an old difference may be too small. So the difference grows, faster than
// clocks drift, until the next record that was made at once. Owns nothing; one thread at a time.

#ifndef FRMPS_CLIENT_TRACE_ALIGN_H
#define FRMPS_CLIENT_TRACE_ALIGN_H

#include <stdint.h>

/* Clocks differ by less than one part of so many. */
#define ALIGN_DRIFT 10000

struct align {
	uint64_t epoch; /* whose clock (shm_time); 0: none is known */
	int64_t ahead;	/* ns: of the device's clock */
	uint64_t seen;	/* host's ns: of the latest record */
};

/** The shim gave a record to the device at `host`, and the device made the record at `device` of
 * the epoch's clock; ns. */
void align_see(struct align *align, uint64_t epoch, uint64_t host, uint64_t device);

/** The host's ns of a moment of the latest epoch's clock. */
uint64_t align_host(const struct align *align, uint64_t device);

#endif

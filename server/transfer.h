// Transfers of sessions between the devices of a service: which of two daemons owns a set of
// sessions, of one or more. The daemons of all devices share one table of transfers. The table
// outlives every daemon, but not the service. So two daemons always read the same outcome of a
// transfer, for all of its sessions, whichever of the two dies.
//
//             transfer_take(), by the receiver
//      OPEN ─────────────────────────────────► TAKEN   the receiver owns the sessions
//        └───────────────────────────────────► CLOSED  the giver keeps them
//             transfer_close(), by either
//
// The table has one word for each giver and receiver, so one transfer at a time. A giver opens the
// next transfer only after the receiver has recorded the outcome of the last.

#ifndef FRMPS_SERVER_TRANSFER_H
#define FRMPS_SERVER_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/place.h"
#include "shm/order.h"

/* The table that all daemons share. */
struct transfers {
	/* Known to daemons of this service alone: the proof that a daemon belongs to the service */
	uint64_t key[2];
	word32 words[PLACE_DEVICES][PLACE_DEVICES]; /* from, to */
};

/* One transfer: two devices, and a number among the transfers from the one to the other. */
struct transfer {
	uint32_t from, to;
	uint32_t number; /* 0: there is none */
};

/** Makes the table, which child processes share. Return: NULL without memory */
struct transfers *transfers_new(void);

/** Opens the next transfer from one device to another. */
struct transfer transfer_open(struct transfers *transfers, uint32_t from, uint32_t to);
/** Return: true if the transfer was open: the receiver owns the sessions from now on */
bool transfer_take(struct transfers *transfers, const struct transfer *transfer);
/** Return: true if the giver owns the sessions for good; false: the receiver was faster */
bool transfer_close(struct transfers *transfers, const struct transfer *transfer);

#endif

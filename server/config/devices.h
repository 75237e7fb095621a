// The devices of one service: the key `devices`, a list of numbers, UUIDs and beginnings of UUIDs
// as the driver counts them, or all. A device that stands in the list several times is several
// logical devices, which share one GPU. All leaves out what cannot be served. Pure.

#ifndef FRMPS_SERVER_CONFIG_DEVICES_H
#define FRMPS_SERVER_CONFIG_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/place.h"

/* Outcomes: the text has the error. */
#define DEVICES_E_WRONG 1
#define DEVICES_E_UNFIT 2 /* a device that the list names, or each device, cannot be served */

/* The devices of the driver. */
struct devices_there {
	int count;
	const uint8_t (*uuids)[16];
	const uint8_t *unfit; /* enum unfit */
};

struct devices {
	unsigned count;
	struct {
		int index;	/* as the driver counts */
		unsigned copy;	/* how many entries before are the same device */
		unsigned place; /* in the list, with those that are left out: [device NUMBER] */
	} list[PLACE_DEVICES];
	bool is_all; /* the list names none of them */
	unsigned left_count;
	struct {
		int index;
		uint8_t unfit;	  /* enum unfit */
		uint8_t uuid[16]; /* zeros: unknown */
	} left[PLACE_DEVICES];	  /* left out. DEVICES_E_UNFIT: those because of which it is */
};

/**
 * Checks a list as far as that is possible without the driver.
 * @ret_text: the error
 * Return: 0 or DEVICES_E_WRONG
 */
int devices_check(const char *list, char *ret_text, size_t size);

/**
 * Finds the devices of a list.
 * Return: 0, DEVICES_E_WRONG or DEVICES_E_UNFIT
 */
int devices_find(const char *list, const struct devices_there *there, struct devices *ret_devices,
	char *ret_text, size_t size);

/** The UUID by which programs know an entry: the device's own for its first entry, and another one
 * for each copy. */
void devices_uuid(const uint8_t uuid[16], unsigned copy, uint8_t ret_uuid[16]);

#endif

// The devices of one service: the key `devices`, a list of numbers, UUIDs and beginnings of UUIDs
// as the driver counts them, or all. A device that stands in the list several times is several
// logical devices, which share one GPU. Pure.

#ifndef FRMPS_SERVER_CONFIG_DEVICES_H
#define FRMPS_SERVER_CONFIG_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/place.h"

/* Outcome: the text has the error. */
#define DEVICES_E_WRONG 1

struct devices {
	unsigned count;
	struct {
		int index;     /* as the driver counts */
		unsigned copy; /* how many entries before are the same device */
	} list[PLACE_DEVICES];
};

/**
 * Checks a list as far as that is possible without the driver.
 * @ret_text: the error
 * Return: 0 or DEVICES_E_WRONG
 */
int devices_check(const char *list, char *ret_text, size_t size);

/**
 * Finds the devices of a list.
 * @count, @uuids: of the driver's devices
 * Return: 0 or DEVICES_E_WRONG
 */
int devices_find(const char *list, int count, const uint8_t (*uuids)[16], struct devices *ret_devices,
	char *ret_text, size_t size);

/** The UUID by which programs know an entry: the device's own for its first entry, and another one
 * for each copy. */
void devices_uuid(const uint8_t uuid[16], unsigned copy, uint8_t ret_uuid[16]);

#endif

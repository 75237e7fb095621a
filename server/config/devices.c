// See devices.h.

#include "server/config/devices.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/uuid.h"
#include "server/backend/unfit.h"

/* The byte of a UUID that tells copies apart. Two UUIDs that differ in this byte alone would be
 * needed for a copy to look like another device. */
#define COPY_BYTE 9

static int fail(char *text, size_t size, const char *entry, size_t length, const char *what)
{
	snprintf(text, size, "devices: \"%.*s\" %s", (int)length, entry, what);
	return DEVICES_E_WRONG;
}

static bool is_number(const char *entry, size_t length)
{
	return length > 0 && length <= 4 && strspn(entry, "0123456789") >= length;
}

/* @there: NULL: any device may be there */
static int find_number(const char *entry, size_t length, const struct devices_there *there, int *ret_index,
	char *text, size_t size)
{
	int number = atoi(entry);
	char what[64];

	if (there && number >= there->count) {
		snprintf(what, sizeof(what), "is no device: there are %d, from 0", there->count);
		return fail(text, size, entry, length, what);
	}
	*ret_index = number;
	return 0;
}

/* @length: of the entry, without blanks */
static int find_one(const char *entry, size_t length, const struct devices_there *there, int *ret_index,
	char *text, size_t size)
{
	*ret_index = 0;
	if (is_number(entry, length))
		return find_number(entry, length, there, ret_index, text, size);
	if (length > 4 && strncmp(entry, "MIG-", 4) == 0)
		return fail(text, size, entry, length, "is a MIG device: the service serves whole GPUs");
	if (length <= 4 || strncmp(entry, "GPU-", 4) != 0)
		return fail(text, size, entry, length, "is neither a number nor a UUID (GPU-…), nor all");
	if (!there)
		return 0;
	*ret_index = uuid_find(entry, length, there->count, there->uuids);
	return *ret_index >= 0
		       ? 0
		       : fail(text, size, entry, length, "is the beginning of no UUID, or of several");
}

static unsigned count_copies(const struct devices *devices, int index)
{
	unsigned copies = 0;

	for (unsigned i = 0; i < devices->count; i++)
		copies += devices->list[i].index == index;
	return copies;
}

static int add(struct devices *devices, int index, char *text, size_t size)
{
	const unsigned place = devices->count + devices->left_count;

	if (devices->count == PLACE_DEVICES) {
		snprintf(text, size, "devices: more than %u", PLACE_DEVICES);
		return DEVICES_E_WRONG;
	}
	devices->list[devices->count].copy = count_copies(devices, index);
	devices->list[devices->count].place = place;
	devices->list[devices->count++].index = index;
	return 0;
}

static void leave_out(struct devices *devices, const struct devices_there *there, int index)
{
	devices->left[devices->left_count].index = index;
	devices->left[devices->left_count].unfit = there->unfit[index];
	memcpy(devices->left[devices->left_count++].uuid, there->uuids[index], 16);
}

static int fail_unfit(const struct devices *devices, char *text, size_t size)
{
	snprintf(text, size, "devices: GPU %d cannot be served: %s", devices->left[0].index,
		unfit_text(devices->left[0].unfit));
	return DEVICES_E_UNFIT;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static int find_all(const struct devices_there *there, struct devices *devices, char *text, size_t size)
{
	int r = 0;

	devices->is_all = true;
	for (int i = 0; !r && there && i < there->count; i++)
		if (there->unfit[i])
			leave_out(devices, there, i);
		else
			r = add(devices, i, text, size);
	return !r && devices->left_count && !devices->count ? fail_unfit(devices, text, size) : r;
}

/* A device that the list names. */
static int find_named(
	struct devices *devices, const struct devices_there *there, int index, char *text, size_t size)
{
	if (!there || !there->unfit[index])
		return add(devices, index, text, size);
	leave_out(devices, there, index);
	return fail_unfit(devices, text, size);
}

static int find(
	const char *list, const struct devices_there *there, struct devices *devices, char *text, size_t size)
{
	int index, r = 0;

	*devices = (struct devices){0};
	if (strcmp(list, "all") == 0)
		return find_all(there, devices, text, size);
	for (const char *entry = list, *end; !r && entry; entry = *end ? end + 1 : NULL) {
		size_t length;

		entry += strspn(entry, " \t");
		end = entry + strcspn(entry, ",");
		length = (size_t)(end - entry);
		while (length && is_blank(entry[length - 1]))
			length--;
		r = find_one(entry, length, there, &index, text, size);
		r = r ? r : find_named(devices, there, index, text, size);
	}
	return r;
}

int devices_check(const char *list, char *ret_text, size_t size)
{
	struct devices devices;

	return find(list, NULL, &devices, ret_text, size);
}

int devices_find(const char *list, const struct devices_there *there, struct devices *ret_devices,
	char *ret_text, size_t size)
{
	return find(list, there, ret_devices, ret_text, size);
}

void devices_uuid(const uint8_t uuid[16], unsigned copy, uint8_t ret_uuid[16])
{
	memcpy(ret_uuid, uuid, 16);
	ret_uuid[COPY_BYTE] ^= (uint8_t)copy;
}

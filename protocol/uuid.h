// UUIDs of devices as text, which people and scripts name devices by: a single rule for the library
// and the service. No state; any thread.

#ifndef FRMPS_PROTOCOL_UUID_H
#define FRMPS_PROTOCOL_UUID_H

#include <stddef.h>
#include <stdint.h>

/* A UUID as text, with its terminating NUL: "GPU-cb1213a3-d6a4-be7f-0102-030405060708". */
#define UUID_TEXT 41u

/** Writes a UUID as the driver's tools do. */
void uuid_text(const uint8_t uuid[16], char ret_text[UUID_TEXT]);

/**
 * Finds the device whose UUID begins with a text, of more than "GPU-".
 * @text: not terminated: `length` bytes
 * Return: the device's index; -1 if that is not exactly one device
 */
int uuid_find(const char *text, size_t length, int count, const uint8_t (*uuids)[16]);

#endif

// The service's description of a device for the process that asks (server/control/seen.c). No
// state is kept. Any thread.

#ifndef FRMPS_CLIENT_NVML_QUESTION_H
#define FRMPS_CLIENT_NVML_QUESTION_H

#include <stdint.h>

#include "protocol/place.h"

/* As many sessions as a service has at most, with room. */
#define SEEN_PROCESSES_MAX 512u

struct seen_process {
	uint32_t pid;
	uint64_t bytes;
};

struct seen {
	char name[96], uuid[48], pci[32];
	uint32_t number, devices;     /* place among the service's devices; the number of these */
	uint8_t peers[PLACE_DEVICES]; /* by number: WIRE_PEER_*, 0: none */
	uint32_t driver_version, major, minor;
	uint64_t total_bytes, used_bytes;
	uint32_t process_count;
	struct seen_process processes[SEEN_PROCESSES_MAX];
};

/** Asks the service of a device. Return: 0; -1: there is no service, or no answer within seconds */
int question_ask(unsigned number, struct seen *ret_seen);

/** Asks the first device that answers. Return: 0; -1: no device answers */
int question_ask_any(struct seen *ret_seen);

/** Parses the document. Return: 0; -1: invalid */
int question_parse(const char *text, struct seen *ret_seen);

#endif

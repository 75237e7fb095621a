// See mps.h.

#include "client/link/mps.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/log.h"
#include "protocol/percentage.h"
#include "protocol/uuid.h"

/* Parses a number and its unit. Return: the rest of the text; NULL if there is no number */
static const char *parse_bytes(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;
	unsigned shift = 0;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return NULL;
	errno = 0;
	value = strtoull(text, &end, 10);
	unit = *end > ' ' ? strchr(units, *end & ~0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
		end += *end == 'B' || *end == 'b';
	}
	if (errno || !value || value > UINT64_MAX >> shift)
		return NULL;
	*ret_bytes = (uint64_t)value << shift;
	return end;
}

/* Parses the name of a device. Return: the rest of the text; NULL if there is no name */
static const char *parse_device(
	const char *text, const struct mps_device *device, bool *ret_is_it, bool *ret_needs_uuid)
{
	const size_t length = strcspn(text, "=,");
	char *end;

	if (text[length] != '=')
		return NULL;
	if (*text >= '0' && *text <= '9') {
		*ret_is_it = strtoul(text, &end, 10) == device->number;
		return end == text + length ? end : NULL;
	}
	if (strncmp(text, "GPU-", 4) != 0 || length <= 4 || length >= UUID_TEXT)
		return NULL;
	*ret_is_it = device->uuid && uuid_find(text, length, 1, (const uint8_t(*)[16])device->uuid) == 0;
	*ret_needs_uuid |= !device->uuid;
	return text + length;
}

CUresult mps_parse_limit(
	const char *text, const struct mps_device *device, uint64_t *ret_bytes, bool *ret_needs_uuid)
{
	*ret_bytes = 0;
	*ret_needs_uuid = false;
	while (*text) {
		uint64_t bytes;
		bool is_it;

		text = parse_device(text, device, &is_it, ret_needs_uuid);
		text = text ? parse_bytes(text + 1, &bytes) : NULL;
		if (!text || (*text && *text != ','))
			return CUDA_ERROR_INVALID_VALUE;
		text += *text == ',';
		if (is_it)
			*ret_bytes = bytes;
	}
	return CUDA_SUCCESS;
}

CUresult mps_memory_limit(const struct mps_device *device, uint64_t *ret_bytes, bool *ret_needs_uuid)
{
	const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	CUresult r;

	*ret_bytes = 0;
	*ret_needs_uuid = false;
	if (!text)
		return CUDA_SUCCESS;
	r = mps_parse_limit(text, device, ret_bytes, ret_needs_uuid);
	if (r != CUDA_SUCCESS)
		client_log(CLIENT_LOG_ERROR,
			"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%.64s is no list of DEVICE=BYTES (as in 0=2G): the "
			"program does not start, because the limit is unclear",
			text);
	return r;
}

CUresult mps_sm_percent(uint32_t *ret_percent)
{
	const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");

	*ret_percent = 0;
	if (!text || !*text || percentage_parse(text, ret_percent))
		return CUDA_SUCCESS;
	client_log(CLIENT_LOG_ERROR,
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%.64s is no percentage from 1 to 100: the program "
		"does not start, because the limit is unclear",
		text);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult mps_priority(uint32_t *ret_priority)
{
	const char *text = getenv("CUDA_MPS_CLIENT_PRIORITY");

	*ret_priority = text && !strcmp(text, "1");
	if (!text || !*text || *ret_priority || !strcmp(text, "0"))
		return CUDA_SUCCESS;
	client_log(CLIENT_LOG_ERROR,
		"CUDA_MPS_CLIENT_PRIORITY=%.64s is neither 0 nor 1: the program does not start, because its "
		"priority is unclear",
		text);
	return CUDA_ERROR_INVALID_VALUE;
}

const char *mps_sm_partition(void)
{
	const char *name = getenv("CUDA_MPS_SM_PARTITION");

	return name ? name : "";
}

void mps_report_unsupported(void)
{
	static const char name[] = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING";
	const char *value = getenv(name);

	if (value && *value)
		client_log(CLIENT_LOG_ERROR, "%s=%.64s has no effect: the service does not support it", name,
			value);
}

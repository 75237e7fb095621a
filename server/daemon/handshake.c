// The handshake. See handshake.h.

#include "server/daemon/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/config/devices.h"
#include "server/log.h"
#include "server/role.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/session/daemon.h"
#include "server/session/grant.h"
#include "server/session/guarantee.h"
#include "server/session/session.h"
#include "server/session/handout.h"
#include "server/session/partition.h"
#include "server/session/window.h"

static int refuse(int32_t code, const char *text, int32_t *ret_code, const char **ret_text)
{
	*ret_code = code;
	*ret_text = text;
	return 1;
}

int handshake_check(const struct wire_hello *hello, int32_t *ret_code, const char **ret_text)
{
	if (hello->major != FRMPS_PROTOCOL_MAJOR)
		return refuse(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
			"the program's libcuda.so.1 and the service are of different versions of frmps: "
			"restart the one that is older",
			ret_code, ret_text);
	if (hello->window_base != WINDOW_GRID_BASE || hello->window_bytes != WINDOW_BYTES)
		return refuse(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
			"the program's libcuda.so.1 lays its address space out differently than the service",
			ret_code, ret_text);
	if (hello->recovery > 2)
		return refuse(
			CUDA_ERROR_INVALID_VALUE, "the wish for recovery is unknown", ret_code, ret_text);
	return 0;
}

void handshake_copy_name(char *copy, size_t size, const char *name)
{
	snprintf(copy, size, "%s", name);
	log_clean(copy);
}

void handshake_identity(char *copy, const struct wire_hello *hello)
{
	handshake_copy_name(copy, SESSION_IDENTITY_MAX, *hello->identity ? hello->identity : hello->program);
}

/* @uuid: room for the UUID, for as long as the description is in use */
static void describe_device(const struct daemon *daemon, uint8_t uuid[16], struct wire_device *description)
{
	const struct backend_device *device = &daemon->device;

	devices_uuid(device->uuid, daemon->heritage->copy, uuid);
	*description = (struct wire_device){.name = device->name,
		.uuid = {uuid, sizeof(device->uuid)},
		.attributes = {device->attributes, BACKEND_DEVICE_ATTRS},
		.total_bytes = device->total_bytes,
		.priority_least = device->priority_least,
		.priority_greatest = device->priority_greatest,
		.limits = {device->limits, BACKEND_DEVICE_LIMITS},
		.peers = {daemon->heritage->peers, daemon->heritage->count},
		.sm_granule = device->sm_granule,
		.sm_units = device->sm_units};
}

/* @uuid: as of describe_device() */
static void fill_welcome(const struct session *session, uint8_t uuid[16], struct wire_welcome *welcome)
{
	const struct daemon *daemon = session->daemon;

	*welcome = (struct wire_welcome){.major = FRMPS_PROTOCOL_MAJOR,
		.session = session->number,
		.window_base = session->window,
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.shape = session->view.shape,
		.driver_version = daemon->device.driver_version,
		.spin_us = (uint32_t)daemon->config->spin_us,
		.memory_limit = terms_lower(session->terms.memory_limit, guarantee_device_bytes(daemon))};
	describe_device(daemon, uuid, &welcome->device);
	/* The program takes its limit for the size of the device, as with cuMemGetInfo(). */
	welcome->device.total_bytes = welcome->memory_limit;
}

bool handshake_wants_description(const struct daemon *daemon, const struct wire_hello *hello)
{
	return hello->describe > 1 || (hello->describe && daemon_devices(daemon) > 1);
}

int handshake_describe(struct daemon *daemon, struct connection *connection, const struct subject *subject,
	const struct wire_hello *hello)
{
	const struct partition *partition = partition_find(daemon, hello->sm_partition);
	struct wire_message message = {.type = WIRE_DESCRIPTION};
	struct wire_description *description = &message.description;
	int32_t attributes[BACKEND_DEVICE_ATTRS];
	struct terms terms;
	uint8_t uuid[16];

	grant_terms(daemon, subject, hello, &terms);
	*description = (struct wire_description){.number = daemon->heritage->number,
		.count = daemon_devices(daemon),
		.driver_version = daemon->device.driver_version};
	describe_device(daemon, uuid, &description->device);
	description->device.total_bytes = terms_lower(terms.memory_limit, guarantee_device_bytes(daemon));
	/* The CUDA runtime asks once, and maybe before there is a session. */
	memcpy(attributes, daemon->device.attributes, sizeof(attributes));
	attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] =
		(int32_t)grant_sms(daemon, &terms, partition ? partition->number : 0);
	description->device.attributes.at = attributes;
	return connection_send(connection, &message, NULL, 0);
}

int handshake_welcome(struct session *session)
{
	struct wire_message message = {.type = WIRE_WELCOME};
	struct shared_fd *writable, *readonly;
	uint8_t uuid[16];
	int fd, r;

	r = shm_region_readonly(session->server_fd->fd, &fd);
	if (r < 0)
		return r;
	readonly = shared_fd_new(fd);
	writable = shared_fd_new(handout_open(session->client_fd));
	fill_welcome(session, uuid, &message.welcome);
	struct shared_fd *fds[3] = {writable, readonly, session->doorbell_fd};
	r = writable && readonly ? connection_send(session->connection, &message, fds, 3) : -ENOMEM;
	shared_fd_unref(writable);
	shared_fd_unref(readonly);
	return r;
}

// The keeper's loop: one thread, one blocking socket, one request at a time.
//
// 	Ready ► { CreateChunk, ReleaseChunk, Ping → Reply } ► Shutdown or hang-up: release everything, leave
//
// A chunk's memory lives as long as any reference: the keeper's handle, executors' mappings, the
// descriptor of daemon and holder. Handle and descriptor outlive executors, descriptor and mappings
// outlive the keeper. The ledger lists our handles: no other handle ever reaches the backend,
// whatever the daemon sent.

#include "server/keeper/keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/keeper/ledger.h"
#include "server/log.h"
#include "server/priority.h"

/* A chunk is never larger than a session's window. */
#define CHUNK_MAX (UINT64_C(256) << 30)

struct keeper {
	const struct backend_ops *ops;
	int socket;
	struct ledger ledger;
	uint64_t latest_request; /* a daemon that took over from a dead one may send a request again */
	struct packet packet;
	struct wire_message request, answer;
	uint64_t values[1];
};

static int send_answer(struct keeper *keeper, const int *fds, unsigned fd_count)
{
	return message_send(keeper->socket, &keeper->answer, fds, fd_count);
}

static struct wire_message *begin_answer(struct keeper *keeper, enum wire_type type)
{
	memset(&keeper->answer, 0, sizeof(keeper->answer));
	keeper->answer.type = type;
	keeper->answer.id = keeper->request.id;
	return &keeper->answer;
}

static int reply(struct keeper *keeper, CUresult code)
{
	begin_answer(keeper, WIRE_REPLY)->reply.code = code;
	return send_answer(keeper, NULL, 0);
}

static CUresult make_chunk(struct keeper *keeper, uint64_t bytes, int *ret_fd)
{
	uint64_t handle;
	CUresult code;

	if (!bytes || bytes % BACKEND_CHUNK_GRANULE || bytes > CHUNK_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ledger_reserve(&keeper->ledger))
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = keeper->ops->chunk_create(bytes, &handle, ret_fd);
	if (code)
		return code;
	ledger_add(&keeper->ledger, handle);
	keeper->values[0] = handle;
	return CUDA_SUCCESS;
}

static int create_chunk(struct keeper *keeper)
{
	int fd = -1, result;
	CUresult code = make_chunk(keeper, keeper->request.chunk.bytes, &fd);
	struct wire_message *answer;

	if (code)
		return reply(keeper, code);
	answer = begin_answer(keeper, WIRE_REPLY);
	answer->reply.values.at = keeper->values;
	answer->reply.values.count = 1;
	result = send_answer(keeper, &fd, 1);
	close(fd);
	return result;
}

static int release_chunk(struct keeper *keeper)
{
	uint64_t handle = keeper->request.chunk.handle;

	if (!ledger_remove(&keeper->ledger, handle))
		return reply(keeper, CUDA_ERROR_INVALID_VALUE);
	return reply(keeper, keeper->ops->chunk_release(handle));
}

static int handle_request(struct keeper *keeper)
{
	if (keeper->request.id && keeper->request.id <= keeper->latest_request)
		return 0;
	if (keeper->request.id)
		keeper->latest_request = keeper->request.id;
	switch (keeper->request.type) {
	case WIRE_CREATE_CHUNK:
		return create_chunk(keeper);
	case WIRE_RELEASE_CHUNK:
		return release_chunk(keeper);
	case WIRE_PING:
		return reply(keeper, CUDA_SUCCESS);
	case WIRE_SHUTDOWN:
		return PACKET_E_CLOSED;
	default:
		return reply(keeper, CUDA_ERROR_NOT_SUPPORTED);
	}
}

/* 0: go on; PACKET_E_CLOSED: leave; else a failure. The daemon is trusted: an invalid message ends
 * the keeper. */
static int serve_one(struct keeper *keeper)
{
	int result = message_receive(keeper->socket, &keeper->packet, &keeper->request);

	if (result)
		return result;
	result = handle_request(keeper);
	packet_close_fds(&keeper->packet);
	return result;
}

static int start(struct keeper *keeper, int device)
{
	CUresult code = keeper->ops->open_keeper(device);

	if (!code)
		code = keeper->ops->thread_enter();
	if (code) {
		struct wire_message *message = begin_answer(keeper, WIRE_LOST);

		message->trouble.code = code;
		message->trouble.text = "the keeper cannot open the device";
		send_answer(keeper, NULL, 0);
		log_error("device %d cannot be opened: code %d", device, (int)code);
		return -ENODEV;
	}
	begin_answer(keeper, WIRE_READY);
	return send_answer(keeper, NULL, 0);
}

static void release_everything(struct keeper *keeper)
{
	for (size_t i = 0; i < keeper->ledger.count; i++)
		keeper->ops->chunk_release(keeper->ledger.handles[i]);
	ledger_deinit(&keeper->ledger);
}

int keeper_main(const struct backend_ops *ops, int device, int control_fd)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));
	int result;

	if (!keeper) {
		close(control_fd);
		return 1;
	}
	priority_raise();
	keeper->ops = ops;
	keeper->socket = control_fd;
	ledger_init(&keeper->ledger);
	result = start(keeper, device);
	while (!result)
		result = serve_one(keeper);
	if (result != PACKET_E_CLOSED && result != -ENODEV)
		log_error("leaving after a failure on the control socket (%d)", result);
	release_everything(keeper);
	ops->close();
	close(control_fd);
	free(keeper);
	return result == PACKET_E_CLOSED ? 0 : 1;
}

// See peers.h.

#include "server/backend/cuda/peers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/await.h"
#include "server/backend/backend.h"
#include "server/backend/cuda/driver.h"
#include "server/log.h"
#include "server/role.h"

/* A driver that wakes many devices needs many seconds; longer than this means a hang. */
#define PATIENCE_MS 60000
/* A chunk has its own device's words, and then room for the marks of each device, of this size. */
#define WORDS	   4096u
#define WORD_BYTES (WORDS * sizeof(uint32_t))

_Static_assert((1 + PLACE_DEVICES) * WORD_BYTES <= BACKEND_CHUNK_GRANULE, "");

enum step { STEP_FILL, STEP_MEET, STEP_CHECK, STEPS };

/* The process of a device. */
struct tester {
	pid_t pid;  /* 0: none */
	int socket; /* steps out, answers in; -1: it has failed */
	/* By step: bit i: what it looked for with device i was there. */
	uint64_t found[STEPS];
};

struct trial {
	const struct backend_probe *probe;
	int chunks[PLACE_DEVICES]; /* descriptors; -1: none */
	struct tester testers[PLACE_DEVICES];
};

static bool is_pair(const struct backend_probe *probe, int device, int other)
{
	return device != other && probe->peers[device][other];
}

static bool has_pairs(const struct backend_probe *probe, int device)
{
	for (int i = 0; i < probe->device_count; i++)
		if (is_pair(probe, device, i) || is_pair(probe, i, device))
			return true;
	return false;
}

/*
 * The process that makes the chunks
 */

static void make_chunk(int device, int socket)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	const uint8_t number = (uint8_t)device;
	CUmemGenericAllocationHandle handle;
	int fd;

	if (!driver.memory_create(&handle, BACKEND_CHUNK_GRANULE, &properties, 0) &&
		!driver.memory_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
		packet_send(socket, &number, 1, &fd, 1);
}

static void maker_main(const struct backend_probe *probe, int socket)
{
	char text[256];

	if (driver_open(text, sizeof(text)) || driver.init(0))
		_exit(1);
	for (int i = 0; i < probe->device_count; i++)
		if (has_pairs(probe, i))
			make_chunk(i, socket);
	_exit(0);
}

static void take_chunks(struct trial *trial, int socket)
{
	static struct packet packet;

	while (await_input(socket, PATIENCE_MS) && packet_receive(socket, &packet) == 0) {
		if (packet.length == 1 && packet.bytes[0] < PLACE_DEVICES && packet.fd_count == 1 &&
			trial->chunks[packet.bytes[0]] < 0)
			trial->chunks[packet.bytes[0]] = packet_take_fd(&packet, 0);
		packet_close_fds(&packet);
	}
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void make_chunks(struct trial *trial)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return;
	pid = fork();
	if (!pid)
		maker_main(trial->probe, ends[1]);
	close(ends[1]);
	if (pid > 0) {
		take_chunks(trial, ends[0]);
		end(pid);
	}
	close(ends[0]);
}

/*
 * The process of a device
 */

/* What a device writes into the chunk of one: nowhere else is the same. */
static void write_words(int writer, int owner, uint32_t *ret)
{
	for (uint32_t i = 0; i < WORDS; i++)
		ret[i] = i << 16 | (uint32_t)writer << 8 | (uint32_t)owner;
}

static bool put(CUdeviceptr address, int writer, int owner)
{
	static uint32_t words[WORDS];

	write_words(writer, owner, words);
	return !driver.copy_to_device(address, words, WORD_BYTES, NULL) && !driver.context_synchronize();
}

static bool holds(CUdeviceptr address, int writer, int owner)
{
	static uint32_t words[WORDS], found[WORDS];

	write_words(writer, owner, words);
	return !driver.copy_to_host(found, address, WORD_BYTES, NULL) && !driver.context_synchronize() &&
	       !memcmp(words, found, WORD_BYTES);
}

/* Return: 0: the device does not reach it */
static CUdeviceptr map_chunk(int fd, CUdevice device)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	if (driver.address_reserve(&address, BACKEND_CHUNK_GRANULE, BACKEND_CHUNK_GRANULE, 0, 0) ||
		driver.memory_import(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return 0;
	return driver_map(address, BACKEND_CHUNK_GRANULE, handle, device) ? 0 : address;
}

static bool open_device(int number, CUdevice *ret_device)
{
	char text[256], *visible = heritage_visible_device(getenv("CUDA_VISIBLE_DEVICES"), number);
	CUcontext context;

	return visible && !setenv("CUDA_VISIBLE_DEVICES", visible, 1) && !driver_open(text, sizeof(text)) &&
	       !driver.init(0) && !driver.device_get(ret_device, 0) &&
	       !driver.primary_retain(&context, *ret_device) && !driver.context_set(context);
}

/* @at: where each chunk is mapped, or 0. Return: whether what the step looks for with device i is
 * there */
static bool find(enum step step, const CUdeviceptr *at, int number, int i)
{
	switch (step) {
	case STEP_FILL:
		return i == number && put(at[i], i, i);
	case STEP_MEET:
		return i != number && holds(at[i], i, i) &&
		       put(at[i] + (1u + number) * WORD_BYTES, number, i);
	case STEP_CHECK:
		return i != number && holds(at[number] + (1u + i) * WORD_BYTES, i, number);
	default:
		return false;
	}
}

static uint64_t take_step(enum step step, const CUdeviceptr *at, int number, int count)
{
	uint64_t found = 0;

	for (int i = 0; i < count; i++)
		if (at[number] && (at[i] || step == STEP_CHECK) && find(step, at, number, i))
			found |= UINT64_C(1) << i;
	return found;
}

static void tester_main(const struct trial *trial, int number, int socket)
{
	CUdeviceptr at[PLACE_DEVICES] = {0};
	CUdevice device;
	uint64_t found;
	uint8_t step;

	if (!open_device(number, &device))
		_exit(1);
	for (int i = 0; i < trial->probe->device_count; i++)
		if (trial->chunks[i] >= 0 && (i == number || is_pair(trial->probe, number, i)))
			at[i] = map_chunk(trial->chunks[i], device);
	while (recv(socket, &step, 1, 0) == 1) {
		found = take_step(step, at, number, trial->probe->device_count);
		if (send(socket, &found, sizeof(found), MSG_NOSIGNAL) != sizeof(found))
			break;
	}
	_exit(0);
}

static void start(struct trial *trial, int number)
{
	struct tester *tester = &trial->testers[number];
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return;
	tester->pid = fork();
	if (!tester->pid) {
		/* A tester whose asker has died reads the end of its socket. */
		close(ends[0]);
		tester_main(trial, number, ends[1]);
	}
	close(ends[1]);
	if (tester->pid < 0)
		close(ends[0]);
	else
		tester->socket = ends[0];
}

/*
 * The asking process
 */

static void take_answer(struct tester *tester, enum step step)
{
	uint64_t found = 0;

	if (tester->socket < 0)
		return;
	if (await_input(tester->socket, PATIENCE_MS) &&
		recv(tester->socket, &found, sizeof(found), 0) == sizeof(found)) {
		tester->found[step] = found;
		return;
	}
	close(tester->socket);
	tester->socket = -1;
}

static void take_steps(struct trial *trial)
{
	const int count = trial->probe->device_count;

	for (uint8_t step = 0; step < STEPS; step++) {
		for (int i = 0; i < count; i++)
			if (trial->testers[i].socket >= 0)
				send(trial->testers[i].socket, &step, 1, MSG_NOSIGNAL);
		for (int i = 0; i < count; i++)
			take_answer(&trial->testers[i], step);
	}
}

static void close_all(struct trial *trial)
{
	for (int i = 0; i < (int)PLACE_DEVICES; i++) {
		if (trial->testers[i].pid > 0)
			end(trial->testers[i].pid);
		if (trial->testers[i].socket >= 0)
			close(trial->testers[i].socket);
		if (trial->chunks[i] >= 0)
			close(trial->chunks[i]);
	}
}

static bool reaches(const struct trial *trial, int device, int other)
{
	return trial->testers[device].found[STEP_MEET] >> other & 1 &&
	       trial->testers[other].found[STEP_CHECK] >> device & 1;
}

void cuda_peers_try(struct backend_probe *probe)
{
	struct trial trial = {.probe = probe};
	bool is_wanted = false;

	for (int i = 0; i < (int)PLACE_DEVICES; i++) {
		trial.chunks[i] = trial.testers[i].socket = -1;
		is_wanted = is_wanted || has_pairs(probe, i);
	}
	if (!is_wanted)
		return;
	make_chunks(&trial);
	for (int i = 0; i < probe->device_count; i++)
		if (trial.chunks[i] >= 0)
			start(&trial, i);
	take_steps(&trial);
	close_all(&trial);
	for (int i = 0; i < probe->device_count; i++)
		for (int k = 0; k < probe->device_count; k++) {
			if (!is_pair(probe, i, k) || reaches(&trial, i, k))
				continue;
			log_warning("device %d does not reach the memory of device %d, although the driver "
				    "says so: to programs they are no peers",
				i, k);
			probe->peers[i][k] = 0;
		}
}

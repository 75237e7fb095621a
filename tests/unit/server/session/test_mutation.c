// Requests that were tampered with, from the client's socket through the daemon to its workers:
// each kind of request as a client sends it, with some bytes changed, with descriptors that do not
// belong there, in any order. Nothing may come of it but an answer or the end of that one client:
// the sanitizers look at the memory, the fixtures at descriptors and at what the daemon still
// holds, and another client is served all the time. The same numbers in every run.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/session/session.h"
#include "server/session/window.h"
#include "tests/lib/seed.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define MIB    (UINT64_C(1) << 20)
#define ROUNDS 2000u
/* Of a client, before it gives up: its socket has room for more than one packet beside them. */
#define UNREAD_MAX 16384
#define SEALS	   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static struct fake *fake;
static struct fake_client client, honest;
static uint64_t next_handle;
static bool is_there; /* the client that sends them */

static uint32_t random_word(void)
{
	static uint32_t state;
	static bool is_seeded;

	if (!is_seeded)
		state = seed_of(2026);
	is_seeded = true;
	state = state * UINT32_C(1664525) + UINT32_C(1013904223);
	return state >> 8;
}

static uint32_t some(uint32_t count)
{
	return random_word() % count;
}

/* ---- requests ---- */

static const enum wire_type types[] = {WIRE_MAP_MEMORY, WIRE_UNMAP_MEMORY, WIRE_MAP_HOST, WIRE_UNMAP_HOST,
	WIRE_QUERY_MEMORY, WIRE_LOAD_MODULE, WIRE_UNLOAD_MODULE, WIRE_FIND_FUNCTION, WIRE_FIND_GLOBAL,
	WIRE_LIST_FUNCTIONS, WIRE_SET_FUNCTION, WIRE_QUERY_OCCUPANCY, WIRE_CREATE_MEMORY, WIRE_RELEASE_MEMORY,
	WIRE_MAP_HANDLE, WIRE_EXPORT_MEMORY, WIRE_IMPORT_MEMORY, WIRE_RESERVE_WINDOW, WIRE_RELEASE_WINDOW,
	WIRE_ENCODE_TENSOR_MAP, WIRE_MAKE_GRAPH, WIRE_DROP_GRAPH, WIRE_LINK_ADD, WIRE_LINK_COMPLETE,
	WIRE_LINK_DROP, WIRE_IMPORT_HOST, WIRE_MAKE_ARRAY, WIRE_BACK_ARRAY, WIRE_DROP_ARRAY, WIRE_MAKE_OBJECT,
	WIRE_DROP_OBJECT, WIRE_MAKE_FILE, WIRE_TAKE_FILE, WIRE_HELLO, WIRE_ACTIVATE};

static const struct wire_option options[] = {{CU_JIT_MAX_REGISTERS, 0, 24}, {CU_JIT_TARGET, 0, 90}};
static const uint64_t words[WIRE_TENSOR_MAP_WORDS] = {128, 64, 32, ~UINT64_C(0)};
static const uint32_t boxes[] = {16, 8, 4};
static const int32_t corner[] = {0};
static const uint64_t free_windows[] = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)};

static void fill_memory(struct wire_message *message, uint64_t device)
{
	switch (message->type) {
	case WIRE_CREATE_MEMORY:
	case WIRE_RELEASE_MEMORY:
	case WIRE_MAP_HANDLE:
	case WIRE_EXPORT_MEMORY:
	case WIRE_IMPORT_MEMORY:
		message->memory = (struct wire_memory){.handle = 1 + some(4),
			.address = device + 64 * MIB,
			.bytes = 2 * MIB,
			.token = {1, 2},
			.host = some(2)};
		break;
	case WIRE_RESERVE_WINDOW:
	case WIRE_RELEASE_WINDOW:
		message->window =
			(struct wire_window){.bytes = WINDOW_BYTES, .free_windows = {free_windows, 3}};
		break;
	case WIRE_IMPORT_HOST:
		message->import = (struct wire_import){
			device + WINDOW_DEVICE_BYTES, 4096, 1, honest.window_base + WINDOW_DEVICE_BYTES};
		break;
	default:
		message->range = (struct wire_range){.address = device + some(4) * 2 * MIB, .bytes = 2 * MIB};
		break;
	}
}

static void fill_array(struct wire_message *message, uint64_t device)
{
	switch (message->type) {
	case WIRE_BACK_ARRAY:
		message->back_array =
			(struct wire_back_array){.array = 1 + some(3), .address = device, .bytes = MIB};
		break;
	case WIRE_MAKE_OBJECT:
	case WIRE_DROP_OBJECT:
		message->object = (struct wire_object){
			.object = 1 + some(3), .array = 1 + some(3), .has_texture = true};
		break;
	default:
		message->array = (struct wire_array){.array = 1 + some(3),
			.width = 64,
			.height = 64,
			.format = CU_AD_FORMAT_FLOAT,
			.channels = 4};
		break;
	}
}

static uint64_t file; /* of the latest answer to MakeFile */

static void fill(struct wire_message *message)
{
	uint64_t device = client.window_base;

	switch (message->type) {
	case WIRE_LOAD_MODULE:
		message->load_module = (struct wire_load_module){1 + some(3), some(2), 4096, {options, 2},
			some(3), some(8) == 0, file, some(9) ? 0 : 4096, some(2) ? 0 : UINT64_MAX};
		break;
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
		message->symbol = (struct wire_symbol){1 + some(3), 1 + some(5), "a_kernel", some(3)};
		break;
	case WIRE_SET_FUNCTION:
		message->set_function = (struct wire_set_function){1 + some(5), some(3), 1};
		break;
	case WIRE_QUERY_OCCUPANCY:
		message->occupancy = (struct wire_occupancy){
			.function = 1 + some(5), .query = some(4), .grid = {boxes, 3}, .block = {boxes, 3}};
		break;
	case WIRE_ENCODE_TENSOR_MAP:
		message->tensor_map = (struct wire_tensor_map){.kind = 1,
			.rank = 3,
			.address = device,
			.dims = {words, 3},
			.strides = {words, 2},
			.element_strides = {boxes, 3},
			.lower = {corner, 1},
			.upper = {corner, 1}};
		break;
	case WIRE_MAKE_GRAPH:
	case WIRE_DROP_GRAPH:
		message->graph = (struct wire_graph){1 + some(3), 4096, file};
		break;
	case WIRE_LINK_ADD:
	case WIRE_LINK_COMPLETE:
	case WIRE_LINK_DROP:
		message->link = (struct wire_link){.link = some(3),
			.bytes = 4096,
			.name = "input",
			.options = {options, 2},
			.file = file};
		break;
	case WIRE_MAKE_ARRAY:
	case WIRE_BACK_ARRAY:
	case WIRE_DROP_ARRAY:
	case WIRE_MAKE_OBJECT:
	case WIRE_DROP_OBJECT:
		fill_array(message, device);
		break;
	case WIRE_HELLO:
		message->hello = (struct wire_hello){.program = "again"};
		break;
	case WIRE_MAP_HOST:
	case WIRE_UNMAP_HOST:
		message->range = (struct wire_range){.address = device + WINDOW_DEVICE_BYTES + some(4) * 4096,
			.bytes = 4096,
			.flags = some(2),
			.file = some(2) ? 0 : file,
			.offset = some(4) ? 0 : 4096};
		break;
	default:
		fill_memory(message, device);
		break;
	}
}

/* As it would come from a client, or changed in up to three places. Return: its length. */
static size_t make_packet(uint8_t *packet, enum wire_type type)
{
	struct wire_message *message = calloc(1, sizeof(*message));
	size_t length;

	message->type = type;
	message->id = client.next_id++;
	fill(message);
	ck_assert_int_eq(wire_encode(message, packet, WIRE_PACKET_MAX, &length), 0);
	for (uint32_t i = some(4); i > 0; i--)
		packet[some((uint32_t)length)] = (uint8_t)random_word();
	free(message);
	return length;
}

/* ---- those around ---- */

/* Without the descriptors of what came before. */
static int receive(int socket)
{
	packet_close_fds(&fake->packet);
	return packet_receive(socket, &fake->packet);
}

/* What a worker has been asked is answered, well or not. */
static void serve(int socket)
{
	int fd = fake_memfd(4096, 0);

	while (!receive(socket)) {
		struct wire_message reply = {.type = WIRE_REPLY};
		enum wire_type type;

		ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
		type = fake->message.type;
		reply.id = fake->message.id;
		if (type == WIRE_CREATE_CHUNK || type == WIRE_CLOSE_SESSION)
			reply.reply.values =
				(struct wire_u64s){type == WIRE_CREATE_CHUNK ? &next_handle : words, 1};
		else if (type != WIRE_RELEASE_CHUNK && !some(8))
			reply.reply.code = CUDA_ERROR_INVALID_VALUE;
		if (reply.id)
			fake_send(fake, socket, &reply, &fd, type == WIRE_CREATE_CHUNK);
		next_handle++;
	}
	close(fd);
}

/* A compiler crashes at some. */
static void compile(struct fake_compiler *compiler)
{
	if (compiler->compiler->reply && !some(4))
		fake_crash(fake, compiler);
	else
		serve(compiler->socket);
}

static void serve_all(void)
{
	for (int i = 0; i < 4; i++) {
		fake_turn(fake);
		for (unsigned k = 0; k < fake->child_count; k++)
			serve(fake->children[k].socket);
		for (unsigned k = 0; k < FAKE_COMPILERS_MAX; k++)
			if (fake->compilers[k].compiler)
				compile(&fake->compilers[k]);
	}
}

/* The bytes of packets that the daemon has not read: it reads none behind a request that waits, and
 * one that waits for another executor waits for ever here. */
static bool is_full(void)
{
	int bytes = 0;

	ck_assert_int_eq(ioctl(client.socket, SIOCOUTQ, &bytes), 0);
	return bytes > UNREAD_MAX;
}

static void read_answers(void)
{
	int r;

	do {
		r = receive(client.socket);
	} while (!r);
	if (r == PACKET_E_AGAIN && !is_full())
		return;
	fake_leave(fake, &client);
	is_there = false;
	serve_all();
}

static void send_packet(const uint8_t *packet, size_t length, int fd, unsigned count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(count * sizeof(int))};
		for (unsigned i = 0; i < count; i++)
			memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &fd, sizeof(fd));
	}
	ck_assert_int_eq(sendmsg(client.socket, &message, MSG_NOSIGNAL), (ssize_t)length);
}

static bool wants_file(enum wire_type type)
{
	return type == WIRE_LOAD_MODULE || type == WIRE_MAKE_GRAPH || type == WIRE_LINK_ADD ||
	       type == WIRE_MAP_HOST;
}

/* A file of the daemon with 4096 bytes, sealed as most are. */
static void make_file(void)
{
	const struct wire_message ask = {.type = WIRE_MAKE_FILE, .id = client.next_id++};
	int fd;

	fake_send(fake, client.socket, &ask, NULL, 0);
	serve_all();
	if (receive(client.socket))
		return;
	ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
	fd = packet_take_fd(&fake->packet, 0);
	if (fd < 0)
		return;
	file = fake->message.reply.values.at[0];
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, some(4) ? SEALS : 0), 0);
	close(fd);
}

static void send_something(int any_file)
{
	_Alignas(8) static uint8_t packet[WIRE_PACKET_MAX];
	enum wire_type type = types[some(sizeof(types) / sizeof(types[0]))];
	unsigned count = some(16) ? 0 : some(3);
	size_t length;

	if (wants_file(type) && some(8))
		make_file();
	length = make_packet(packet, type);
	send_packet(packet, length, any_file, count);
}

TEST(mutation, tampered_requests_hurt_nobody_else)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	int any_file;

	fake = fake_new(1);
	fake_boot(fake);
	fake->config.guard = CONFIG_GUARD_OFF;
	any_file = fake_memfd(4096, SEALS);
	fake_join(fake, &honest, &fake->children[1], &fake->children[2]);
	serve_all();
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (!is_there) {
			fake_join(fake, &client, &fake->children[1], &fake->children[2]);
			is_there = true;
			serve_all();
		}
		send_something(any_file);
		serve_all();
		read_answers();
		if (round % 100)
			continue;
		fake_request(fake, &honest, &query, -1);
		serve_all();
		fake_expect(fake, honest.socket, WIRE_REPLY);
	}
	ck_assert_uint_gt(fake->daemon.counters.requests, ROUNDS / 8);
	ck_assert_uint_gt(fake->daemon.counters.sessions_rejected, ROUNDS / 40);
	if (is_there)
		fake_leave(fake, &client);
	fake_leave(fake, &honest);
	serve_all();
	close(any_file);
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

int main(void)
{
	Suite *suite = suite_create("mutation");
	TCase *all = suite_case(suite, "mutation");

	fake_prepare();
	tcase_set_timeout(all, 300);
	suite_add(all, "mutation");
	return suite_run(suite);
}

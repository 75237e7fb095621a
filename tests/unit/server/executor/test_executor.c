// The whole role with its threads, from Ready to Shutdown, over a real control socket; the backend
// is the fake one. The test is daemon and client at once. Waiting is always for an answer or a
// word, bounded by the suite's timeout.

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/executor.h"
#include "server/executor/hollow.h"
#include "server/executor/module.h"
#include "server/executor/open.h"
#include "server/executor/pace.h"
#include "server/executor/stream.h"
#include "server/executor/tenant.h"
#include "shm/doorbell.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fake_backend.h"

#define DEVICE_BYTES (UINT64_C(32) << 20)
#define HOST_BYTES   (UINT64_C(1) << 20)
#define CHUNK	     BACKEND_CHUNK_GRANULE

static int control[2] = {-1, -1};
static pthread_t main_thread;
static uint64_t next_id;
static struct packet answer;
static struct wire_message message;

/* The session of a client that does not take text. */
#define DEAF 7u

#define STREAMS 32u

struct client {
	uint64_t session, window;
	struct shm_view view;
	struct ring_writer ring;
	int client_fd, server_fd, doorbell;
	uint64_t seq[STREAMS];
};

static void *run(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)executor_main(&fake_ops, 0, control[0], -1);
}

static struct executor by_hand; /* the test is its main thread as well; all zero: there is none */

static bool has_message(int fd)
{
	return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0;
}

/* What the main thread does in one go. */
static void step_by_hand(void)
{
	struct job *job;

	sched_yield();
	job_board_step(&by_hand.board, clock_now());
	if (!has_message(control[0]))
		return;
	job = job_new(&by_hand);
	ck_assert_int_eq(message_receive(control[0], &job->packet, &job->message), 0);
	ck_assert_int_eq(executor_handle(&by_hand, job), 0);
}

static void receive(enum wire_type type)
{
	while (by_hand.ops && !has_message(control[1]))
		step_by_hand();
	ck_assert_int_eq(message_receive(control[1], &answer, &message), 0);
	ck_assert_msg(
		message.type == type, "%s instead of %s", wire_type_name(message.type), wire_type_name(type));
}

static void start_executor(void)
{
	fake_reset();
	fake.immediate = true;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
	setenv("FRMPS_EXECUTOR_THREADS", "2", 1);
	setenv("FRMPS_SPIN_US", "0", 1);
	ck_assert_int_eq(pthread_create(&main_thread, NULL, run, NULL), 0);
	receive(WIRE_READY);
	ck_assert_str_eq(message.ready.device.name, "fake");
}

static void start(void)
{
	start_executor();
}

static uint64_t send_request(struct wire_message *request, const int *fds, unsigned count)
{
	request->id = ++next_id;
	ck_assert_int_eq(message_send(control[1], request, fds, count), 0);
	return request->id;
}

static void stop(void)
{
	struct wire_message request = {.type = WIRE_SHUTDOWN};
	void *status;

	send_request(&request, NULL, 0);
	pthread_join(main_thread, &status);
	ck_assert_int_eq((intptr_t)status, EXIT_SUCCESS);
	close(control[0]);
	close(control[1]);
}

/* Sends and waits for the answer to just that. Return: its code. */
static CUresult call(struct client *client, struct wire_message *request, const int *fds, unsigned count)
{
	uint64_t id;

	request->session = client ? client->session : 0;
	id = send_request(request, fds, count);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	return message.reply.code;
}

/* Addresses that nobody uses, in a region where all sanitizers allow mappings. */
static uint64_t window_of(uint64_t session)
{
	return UINT64_C(0x7e9000000000) + (session << 30);
}

static void open_client(struct client *client, uint64_t session)
{
	struct wire_message request = {.type = WIRE_OPEN_SESSION};
	struct wire_shape shape;

	memset(client, 0, sizeof(*client));
	client->session = session;
	client->window = window_of(session);
	shm_shape_init(&shape, 1u << 20, 1u << 20, 64);
	ck_assert_int_eq(shm_region_new(&shape, &client->client_fd, &client->server_fd), 0);
	ck_assert_int_eq(
		shm_view_map(&client->view, &shape, client->client_fd, client->server_fd, SHM_SIDE_CLIENT),
		0);
	ring_writer_init(&client->ring, &client->view);
	client->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	request.open_session = (struct wire_open_session){.window_base = client->window,
		.device_bytes = DEVICE_BYTES,
		.host_bytes = HOST_BYTES,
		.shape = shape,
		.program = "test",
		.pid = 1,
		.text = session == DEAF ? 0 : client->window + DEVICE_BYTES};
	ck_assert_int_eq(
		call(client, &request, (int[]){client->client_fd, client->server_fd, client->doorbell}, 3),
		0);
}

static void activate(struct client *client)
{
	struct wire_message request = {.type = WIRE_ACTIVATE};
	uint32_t recover = 0;

	request.activate = (struct wire_activate){
		.generation = 1, .sessions = {&client->session, 1}, .recover = {&recover, 1}, .reason = ""};
	ck_assert_int_eq(call(NULL, &request, NULL, 0), 0);
	ck_assert_uint_eq(message.reply.values.count, 1);
	ck_assert_uint_eq(message.reply.values.at[0], 0);
}

static uint64_t close_tenant(struct client *client, uint32_t patience_ms)
{
	struct wire_message request = {.type = WIRE_CLOSE_SESSION, .close_session = {patience_ms}};

	ck_assert_int_eq(call(client, &request, NULL, 0), 0);
	ck_assert_uint_ge(message.reply.values.count, 1);
	return message.reply.values.at[0];
}

static uint64_t detach_tenant(struct client *client, uint32_t patience_ms)
{
	struct wire_message request = {.type = WIRE_DETACH_SESSION, .close_session = {patience_ms}};

	ck_assert_int_eq(call(client, &request, NULL, 0), 0);
	ck_assert_uint_eq(message.reply.values.count, 1);
	return message.reply.values.at[0];
}

static void close_client(struct client *client)
{
	shm_view_unmap(&client->view);
	close(client->client_fd);
	close(client->server_fd);
	close(client->doorbell);
}

static int memory(const char *bytes, uint64_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	if (bytes)
		ck_assert_int_eq(pwrite(fd, bytes, strlen(bytes), 0), (ssize_t)strlen(bytes));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static CUresult call_range(
	struct client *client, enum wire_type type, uint64_t address, uint64_t bytes, bool with_memory)
{
	struct wire_message request = {.type = type, .range = {.address = address, .bytes = bytes}};
	int fd = with_memory ? memory(NULL, bytes) : -1;
	CUresult code = call(client, &request, &fd, with_memory);

	if (fd >= 0)
		close(fd);
	return code;
}

/* @block: of its variables, where an executor before has put them */
static CUresult load_again(struct client *client, uint32_t module, const char *image, uint64_t block)
{
	struct wire_message request = {.type = WIRE_LOAD_MODULE};
	int fd = memory(image, strlen(image));
	CUresult code;

	request.load_module = (struct wire_load_module){.module = module,
		.bytes = strlen(image),
		.variables = block,
		.is_filled = block != WIRE_VARIABLES_ASKED};
	code = call(client, &request, &fd, 1);
	close(fd);
	return code;
}

static CUresult load(struct client *client, uint32_t module, const char *image)
{
	return load_again(client, module, image, WIRE_VARIABLES_ASKED);
}

static CUresult call_symbol(
	struct client *client, enum wire_type type, uint32_t module, uint32_t function, const char *name)
{
	struct wire_message request = {.type = type, .symbol = {module, function, name}};

	return call(client, &request, NULL, 0);
}

static void put(struct client *client, struct frmps_head head, const void *body, uint32_t bytes)
{
	uint8_t *at;

	head.size = (uint32_t)(sizeof(head) + bytes + 15) / 16 * 16;
	at = ring_reserve(&client->ring, head.size);
	ck_assert_ptr_nonnull(at);
	memset(at, 0, head.size);
	memcpy(at, &head, sizeof(head));
	if (bytes)
		memcpy(at + sizeof(head), body, bytes);
	ring_publish(&client->ring, head.size);
	doorbell_ring(client->doorbell, &client->view.server->asleep);
}

static uint64_t launch(struct client *client, uint32_t stream, uint16_t flags)
{
	struct {
		struct frmps_launch launch;
		uint64_t argument;
	} body = {{.function = 1, .argument_bytes = 8}, 42};
	uint64_t seq = ++client->seq[stream];

	put(client, (struct frmps_head){.op = FRMPS_OP_LAUNCH, .stream = stream, .flags = flags, .seq = seq},
		&body, sizeof(body));
	return seq;
}

/* As a client does: asks for a wake-up and sleeps. */
static void wait_for(struct client *client, uint32_t stream, uint64_t seq)
{
	struct frmps_wake wake = {seq};

	put(client, (struct frmps_head){.op = FRMPS_OP_WAKE, .stream = stream}, &wake, sizeof(wake));
	for (;;) {
		uint32_t seen = word_acquire(&client->view.server->wake);

		if (shm_view_done(&client->view, stream) >= seq)
			return;
		wake_wait(&client->view.server->wake, seen, 100000);
	}
}

static void prepare(struct client *client, uint64_t session)
{
	open_client(client, session);
	activate(client);
	ck_assert_int_eq(load(client, 1, "M one"), 0);
	ck_assert_int_eq(call_symbol(client, WIRE_FIND_FUNCTION, 1, 1, "kernel"), 0);
}

TEST(role, comes_and_goes)
{
	struct wire_message ping = {.type = WIRE_PING};

	ck_assert_int_eq(call(NULL, &ping, NULL, 0), 0);
}

TEST(role, a_client_from_beginning_to_end)
{
	struct client client;
	struct wire_message request;

	prepare(&client, 5);
	ck_assert_uint_eq(message.reply.values.count, 1 + 2 + BACKEND_FUNC_ATTRS + 5);
	ck_assert_uint_eq(message.reply.values.at[2], 8);
	ck_assert_uint_eq(message.reply.values.at[3], 1024);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(message.reply.values.at[3 + BACKEND_FUNC_ATTRS + i], 32 >> i);
	ck_assert_uint_eq(message.reply.values.at[7 + BACKEND_FUNC_ATTRS], 1);
	for (int i = 0; i < 1000; i++)
		launch(&client, 1 + i % 3, 0);
	for (uint32_t stream = 1; stream <= 3; stream++)
		wait_for(&client, stream, client.seq[stream]);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1000);
	ck_assert_int_eq(call_symbol(&client, WIRE_FIND_GLOBAL, 1, 0, "table"), 0);
	ck_assert_uint_eq(message.reply.values.at[1], 256);
	ck_assert_int_eq(call_symbol(&client, WIRE_LIST_FUNCTIONS, 1, 0, ""), 0);
	ck_assert_uint_eq(message.reply.names.count, 1);
	ck_assert_str_eq(message.reply.names.at[0], "kernel");
	request = (struct wire_message){.type = WIRE_SET_FUNCTION, .set_function = {1, 8, 49152}};
	ck_assert_int_eq(call(&client, &request, NULL, 0), 0);
	request = (struct wire_message){
		.type = WIRE_QUERY_OCCUPANCY, .occupancy = {.function = 1, .block_size = 128}};
	ck_assert_int_eq(call(&client, &request, NULL, 0), 0);
	ck_assert_uint_eq(message.reply.values.at[0], 16);
	ck_assert_int_eq(call_symbol(&client, WIRE_UNLOAD_MODULE, 1, 0, ""), 0);
	ck_assert_int_eq(call_symbol(&client, WIRE_UNLOAD_MODULE, 1, 0, ""), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

static void set_sms(struct client *client, uint32_t count)
{
	const uint32_t share = count << SHM_SHARE_SMS_SHIFT;

	ck_assert_int_eq(
		pwrite(client->server_fd, &share, sizeof(share), offsetof(struct shm_server_header, share)),
		sizeof(share));
}

/* Its module's first use needs a gap, in which the group is made before. */
TEST(role, a_capped_session_has_its_group_before_its_first_kernel)
{
	struct client client;

	open_client(&client, 5);
	set_sms(&client, 3);
	activate(&client);
	ck_assert_int_eq(load(&client, 1, "M one"), 0);
	ck_assert_int_eq(call_symbol(&client, WIRE_FIND_FUNCTION, 1, 1, "kernel+"), 0);
	for (uint32_t stream = 1; stream <= 3; stream++)
		wait_for(&client, stream, launch(&client, stream, 0));
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 1);
	ck_assert_uint_eq(fake_call(FAKE_SMS_MAKE, 0)->value, BACKEND_SMS(0, 3));
	ck_assert_int_lt(fake_position(FAKE_SMS_MAKE, 0), fake_position(FAKE_SETTLE, 0));
	for (unsigned i = 0; i < 3; i++) {
		const struct fake_call *made =
			fake_call(FAKE_STREAM_CREATE, fake_count(FAKE_STREAM_CREATE) - 1 - i);

		ck_assert_uint_eq(made->value, BACKEND_SMS(0, 3));
	}
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

/* Another executor of the session is told where the first one has put its code. */
TEST(role, code_lies_where_it_was)
{
	struct wire_message request = {.type = WIRE_LOAD_MODULE,
		.load_module = {
			.module = 2, .bytes = 1, .variables = WIRE_VARIABLES_OF_DRIVER, .is_filled = true}};
	struct client client;
	int fd = memory("M", 1);

	open_client(&client, 5);
	activate(&client);
	ck_assert_int_eq(load(&client, 1, "M"), 0);
	ck_assert_uint_eq(message.reply.values.at[2], client.window + FAKE_CODE);
	request.load_module.code = 0x777700;
	ck_assert_int_eq(call(&client, &request, &fd, 1), 0);
	ck_assert_uint_eq(message.reply.values.at[2], 0x777700);
	close(fd);
}

/* Who takes text is told of a module whose kernels print; others are told nothing. */
TEST(role, modules_that_print)
{
	struct client client, deaf;

	open_client(&client, 5);
	activate(&client);
	ck_assert_int_eq(load(&client, 1, "M"), 0);
	ck_assert_uint_eq(message.reply.values.count, 7);
	ck_assert_uint_eq(message.reply.values.at[1], 0);
	ck_assert_int_eq(load(&client, 2, "MP"), 0);
	ck_assert_uint_eq(message.reply.values.count, 7);
	ck_assert_uint_eq(message.reply.values.at[1], 1);
	ck_assert_int_eq(load(&client, 2, "MP"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(message.reply.values.count, 0);
	open_client(&deaf, DEAF);
	activate(&deaf);
	ck_assert_int_eq(load(&deaf, 1, "MP"), 0);
	ck_assert_uint_eq(message.reply.values.at[1], 0);
	ck_assert_uint_eq(close_tenant(&deaf, 1000), 1);
	close_client(&deaf);
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

/* Nothing is compiled in an executor: not even a standby, which is told of code alone, does it. */
TEST(role, a_text_is_refused)
{
	struct client client;

	open_client(&client, 1);
	ck_assert_int_eq(load(&client, 1, "S"), CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
	activate(&client);
	ck_assert_int_eq(load(&client, 1, "S"), CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
	/* The id is free for its code. */
	ck_assert_int_eq(load(&client, 1, "M"), 0);
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

/* A load that is not waited for. Return: its number */
static uint64_t begin_load(struct client *client, uint32_t module, const char *image)
{
	struct wire_message request = {.type = WIRE_LOAD_MODULE, .session = client->session};
	int fd = memory(image, strlen(image));
	uint64_t id;

	request.load_module = (struct wire_load_module){.module = module, .bytes = strlen(image)};
	id = send_request(&request, &fd, 1);
	close(fd);
	return id;
}

/* A standby's requests follow one another without waiting: the lookup finds the module. */
TEST(role, a_standby_does_everything_in_order)
{
	struct wire_message lookup = {.type = WIRE_FIND_FUNCTION, .session = 1, .symbol = {1, 1, "k"}};
	struct client client;
	uint64_t first, second;

	open_client(&client, 1);
	first = begin_load(&client, 1, "M");
	second = send_request(&lookup, NULL, 0);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, first);
	ck_assert_int_eq(message.reply.code, 0);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, second);
	ck_assert_int_eq(message.reply.code, 0);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* Here they would be in the context, with the values that they were loaded with. */
TEST(role, variables_are_where_they_were_or_nowhere)
{
	struct client client;

	open_client(&client, 5);
	ck_assert_int_eq(load_again(&client, 1, "M", client.window), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(load_again(&client, 1, "M", WIRE_VARIABLES_OF_DRIVER), 0);
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

TEST(role, requests_that_make_no_sense)
{
	struct client client;
	struct wire_message request = {.type = WIRE_MAP_MEMORY};

	open_client(&client, 5);
	activate(&client);
	ck_assert_int_eq(load(&client, 1, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_str_eq(message.reply.text, "fine");
	ck_assert_int_eq(load(&client, 0, "M"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(load(&client, MODULE_MAX, "M"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(load(&client, 1, "M"), 0);
	ck_assert_int_eq(load(&client, 1, "M"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_symbol(&client, WIRE_FIND_FUNCTION, 1, 0, "k"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		call_symbol(&client, WIRE_FIND_FUNCTION, 1, FUNCTION_MAX, "k"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_symbol(&client, WIRE_FIND_FUNCTION, 2, 1, "k"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_symbol(&client, WIRE_FIND_FUNCTION, 1, 1, "x"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(
		call_symbol(&client, WIRE_UNLOAD_MODULE, MODULE_MAX, 0, ""), CUDA_ERROR_INVALID_HANDLE);
	request.session = 99;
	send_request(&request, NULL, 0);
	receive(WIRE_REPLY);
	ck_assert_int_eq(message.reply.code, CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

TEST(role, limits_are_set_and_told)
{
	struct client client;
	struct wire_message request = {.type = WIRE_SET_LIMIT, .limit = {CU_LIMIT_STACK_SIZE, 4096}};

	open_client(&client, 5);
	ck_assert_int_eq(call(&client, &request, NULL, 0), 0);
	ck_assert_uint_eq(message.reply.values.at[0], 4097);
	request.limit.value = 13;
	ck_assert_int_eq(call(&client, &request, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* Return: how many names came. */
static uint32_t list_from(struct client *client, uint32_t from)
{
	struct wire_message request = {.type = WIRE_LIST_FUNCTIONS,
		.session = client->session,
		.symbol = {.module = 1, .from = from}};

	send_request(&request, NULL, 0);
	receive(WIRE_REPLY);
	ck_assert_int_eq(message.reply.code, CUDA_SUCCESS);
	ck_assert_uint_eq(message.reply.values.count, 1);
	ck_assert_uint_eq(message.reply.values.at[0], fake.kernels ? fake.kernels : 1);
	return message.reply.names.count;
}

/* Names of 200 letters: hundreds fit an answer, and thousands do not. */
TEST(role, a_list_of_any_length_is_told_in_parts)
{
	static const uint32_t lengths[] = {0, WIRE_NAMES_MAX, 5000};
	struct client client;
	uint32_t at, count;

	open_client(&client, 5);
	activate(&client);
	ck_assert_int_eq(load(&client, 1, "M"), 0);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		fake.kernels = lengths[i];
		for (at = 0; at < (lengths[i] ? lengths[i] : 1); at += count) {
			count = list_from(&client, at);
			ck_assert_uint_ge(count, lengths[i] > 1000 && at < 4000 ? 250 : 1);
		}
		ck_assert_uint_eq(at, lengths[i] ? lengths[i] : 1);
		ck_assert_uint_eq(list_from(&client, at), 0);
		ck_assert_uint_eq(list_from(&client, UINT32_MAX), 0);
	}
	/* An answer that fits no message. */
	fake.endless_name = true;
	ck_assert_int_eq(call_symbol(&client, WIRE_LIST_FUNCTIONS, 1, 0, ""), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_str_ne(message.reply.text, "");
	fake.endless_name = false;
	fake.kernels = 0;
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

/* The same request once more: answered when it is over. Return: its number */
static uint64_t watch(struct client *client, enum wire_type type, uint64_t address, uint64_t bytes)
{
	struct wire_message request = {.type = type, .session = client->session};

	if (bytes)
		request.range = (struct wire_range){.address = address, .bytes = bytes};
	return send_request(&request, NULL, 0);
}

static void expect_over(uint64_t id)
{
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_int_eq(message.reply.code, 0);
}

/* Waits for the end of what was not over at once; by now it may be, and nothing is there any
 * more. */
static void see_it_over(
	struct client *client, enum wire_type type, uint64_t address, uint64_t bytes, int32_t code_if_gone)
{
	uint64_t id = watch(client, type, address, bytes);

	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert(message.reply.code == 0 || message.reply.code == code_if_gone);
}

TEST(role, memory_comes_and_goes)
{
	struct client client;
	uint64_t host;

	open_client(&client, 5);
	activate(&client);
	host = client.window + DEVICE_BYTES;
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window, CHUNK, true), 0);
	ck_assert_int_eq(
		call_range(&client, WIRE_MAP_MEMORY, client.window, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window + CHUNK, CHUNK, false),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window + 4096, CHUNK, true),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, host, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window, DEVICE_BYTES + CHUNK, true),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_UNMAP_MEMORY, client.window, 2 * CHUNK, false),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_UNMAP_MEMORY, client.window, CHUNK, false), 0);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 1);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, host, 8192, true), 0);
	*(volatile char *)(uintptr_t)(host + 8191) = 1;
	ck_assert_int_eq(
		call_range(&client, WIRE_MAP_HOST, host + 4096, 8192, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_UNMAP_HOST, host, 8192, false), 0);
	/* Its moment may not have come. */
	if (message.reply.values.count)
		see_it_over(&client, WIRE_UNMAP_HOST, host, 8192, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, host, 4096, true), 0);
	ck_assert_int_eq(call_range(&client, WIRE_QUERY_MEMORY, 0, 0, false), 0);
	ck_assert_uint_eq(message.reply.values.at[1], 2);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

static CUresult map_file(struct client *client, int fd, uint64_t bytes, uint64_t offset)
{
	struct wire_message request = {.type = WIRE_MAP_HOST,
		.range = {.address = client->window + DEVICE_BYTES,
			.bytes = bytes,
			.flags = WIRE_HOST_FILE,
			.offset = offset}};

	return call(client, &request, &fd, 1);
}

/* The program may make its file shorter before, and at any time after. */
TEST(role, a_file_of_the_program_may_become_shorter)
{
	int fd = memfd_create("program", MFD_CLOEXEC);
	struct client client;
	volatile uint32_t *words;
	uint64_t host;

	open_client(&client, 5);
	activate(&client);
	host = client.window + DEVICE_BYTES;
	words = (volatile uint32_t *)(uintptr_t)host;
	ck_assert_int_eq(ftruncate(fd, 4 * 4096), 0);
	ck_assert_int_eq(pwrite(fd, "here", 4, 3 * 4096), 4);
	/* What is not said to be a program's must be steady. */
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, host, 4096, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(map_file(&client, fd, 2 * 4096, 3 * 4096), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(map_file(&client, fd, 2 * 4096, 2 * 4096), 0);
	ck_assert_int_eq(memcmp((const char *)(uintptr_t)host + 4096, "here", 4), 0);
	ck_assert_int_eq(ftruncate(fd, 2 * 4096 + 1), 0);
	words[0] = 7;
	ck_assert_uint_eq(words[1024], 0);
	words[1025] = 8;
	ck_assert_uint_eq(words[1025], 8);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_uint_eq(words[0], 0);
	ck_assert_int_eq(map_file(&client, fd, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_UNMAP_HOST, host, 2 * 4096, false), 0);
	if (message.reply.values.count)
		see_it_over(&client, WIRE_UNMAP_HOST, host, 2 * 4096, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(map_file(&client, fd, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(map_file(&client, fd, 4096, 0), 0);
	close(fd);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* The one of another file is a crash, as ever. */
static void touch_what_is_not_there(void)
{
	int fd = memfd_create("other", MFD_CLOEXEC);
	volatile char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	hollow_watch();
	_exit(*at);
}

TEST(role, a_page_of_another_file_is_a_crash)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		touch_what_is_not_there();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	/* A sanitizer makes an exit status of it. */
	ck_assert_int_ne(status, 0);
}

static CUresult call_window(struct client *client, enum wire_type type, uint64_t address, uint64_t bytes)
{
	struct wire_message request = {.type = type, .window = {.address = address, .bytes = bytes}};

	return call(client, &request, NULL, 0);
}

/* Return: whether it is done; otherwise the session is closed */
static bool may_set(struct client *client, uint64_t address)
{
	struct frmps_set set = {.dst = address, .width = 1, .height = 1, .element_bytes = 4};
	const struct frmps_wake wake = {++client->seq[1]};

	put(client, (struct frmps_head){.op = FRMPS_OP_SET, .stream = 1, .seq = wake.seq}, &set, sizeof(set));
	put(client, (struct frmps_head){.op = FRMPS_OP_WAKE, .stream = 1}, &wake, sizeof(wake));
	while (shm_view_done(&client->view, 1) < wake.seq)
		if (word_acquire(&client->view.server->state) == SHM_SESSION_CLOSED)
			return false;
	return true;
}

/* The device part of its own one is the first. */
TEST(role, windows_have_one_owner)
{
	const uint64_t far = UINT64_C(0x200000000000), room = UINT64_C(160) << 30, next = far + room;
	struct client mine, other;

	open_client(&mine, 1);
	activate(&mine);
	open_client(&other, 2);
	activate(&other);
	ck_assert_int_eq(call_range(&mine, WIRE_MAP_MEMORY, far, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_window(&mine, WIRE_RESERVE_WINDOW, far, room), 0);
	ck_assert_uint_eq(message.reply.values.at[0], far);
	ck_assert_uint_eq(message.reply.values.at[1], room);
	ck_assert_int_eq(
		call_window(&mine, WIRE_RESERVE_WINDOW, far + CHUNK, room), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		call_window(&mine, WIRE_RESERVE_WINDOW, mine.window, CHUNK), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_window(&mine, WIRE_RESERVE_WINDOW, far + 4096, room), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_window(&mine, WIRE_RESERVE_WINDOW, next, UINT64_MAX - CHUNK + 1),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_window(&other, WIRE_RESERVE_WINDOW, next, room), 0);
	/* Not over the end of one, nor where somebody else's is. */
	ck_assert_int_eq(
		call_range(&mine, WIRE_MAP_MEMORY, next - CHUNK, 2 * CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&mine, WIRE_MAP_MEMORY, next, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&mine, WIRE_MAP_MEMORY, next - CHUNK, CHUNK, true), 0);
	ck_assert_int_eq(call_range(&mine, WIRE_MAP_MEMORY, far, CHUNK, true), 0);
	ck_assert_int_eq(call_range(&other, WIRE_MAP_MEMORY, next, CHUNK, true), 0);
	ck_assert_int_eq(call_window(&mine, WIRE_RELEASE_WINDOW, next, room), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_window(&mine, WIRE_RELEASE_WINDOW, far, CHUNK), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		call_window(&mine, WIRE_RELEASE_WINDOW, mine.window, DEVICE_BYTES), CUDA_ERROR_INVALID_VALUE);
	ck_assert(may_set(&mine, far + CHUNK - 4));
	ck_assert(may_set(&other, next));
	ck_assert_int_eq(call_range(&mine, WIRE_UNMAP_MEMORY, next - CHUNK, CHUNK, false), 0);
	ck_assert_int_eq(call_range(&mine, WIRE_UNMAP_MEMORY, far, CHUNK, false), 0);
	ck_assert_int_eq(call_window(&mine, WIRE_RELEASE_WINDOW, far, room), 0);
	ck_assert_int_eq(call_range(&mine, WIRE_MAP_MEMORY, far, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_window(&mine, WIRE_RESERVE_WINDOW, far, room), 0);
	ck_assert_int_eq(call_range(&mine, WIRE_MAP_MEMORY, far, CHUNK, true), 0);
	ck_assert(may_set(&mine, far));
	/* A command that names somebody else's memory. */
	ck_assert(!may_set(&mine, next));
	receive(WIRE_OFFENCE);
	ck_assert_uint_eq(message.session, 1);
	ck_assert(may_set(&other, next + CHUNK - 4));
	ck_assert_uint_eq(close_tenant(&mine, 0), 1);
	ck_assert_uint_eq(close_tenant(&other, 0), 1);
	close_client(&mine);
	close_client(&other);
}

/* A window for pinned memory of the program's session on another device. */
TEST(role, pinned_memory_has_further_windows)
{
	const uint64_t far = window_of(64), room = UINT64_C(64) << 20;
	struct wire_message reserve = {
		.type = WIRE_RESERVE_WINDOW, .window = {.address = far, .bytes = room, .host = true}};
	void *at = (void *)(uintptr_t)far;
	struct client client;

	open_client(&client, 1);
	activate(&client);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, far, 8192, true), CUDA_ERROR_INVALID_VALUE);
	/* Somebody else's addresses. */
	ck_assert_ptr_eq(
		mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), at);
	ck_assert_int_eq(call(&client, &reserve, NULL, 0), CUDA_ERROR_MAP_FAILED);
	munmap(at, 4096);
	ck_assert_int_eq(call(&client, &reserve, NULL, 0), 0);
	ck_assert_uint_eq(message.reply.values.at[0], far);
	ck_assert_uint_eq(message.reply.values.at[1], room);
	ck_assert_int_eq(call(&client, &reserve, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, far, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		call_range(&client, WIRE_MAP_HOST, far + room - 4096, 8192, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, far + room - 4096, 4096, true), 0);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, far, 8192, true), 0);
	ck_assert(may_set(&client, far + 8188));
	ck_assert(may_set(&client, far + room - 4));
	/* It is no window that goes. */
	ck_assert_int_eq(call_window(&client, WIRE_RELEASE_WINDOW, far, room), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(&client, WIRE_UNMAP_HOST, far, 8192, false), 0);
	ck_assert(!may_set(&client, far));
	receive(WIRE_OFFENCE);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	if (message.reply.values.at[1])
		see_it_over(&client, WIRE_CLOSE_SESSION, 0, 0, CUDA_ERROR_INVALID_CONTEXT);
	close_client(&client);
	/* The addresses are free again. */
	ck_assert_ptr_eq(mmap(at, room, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0),
		at);
	munmap(at, room);
}

static CUresult call_carry(struct client *client, uint64_t at, uint64_t bytes, uint64_t offset, bool into)
{
	struct wire_message request = {.type = WIRE_CARRY_MEMORY,
		.carry = {.address = at, .bytes = bytes, .offset = offset, .into = into}};
	int fd = memfd_create("swap", MFD_CLOEXEC);
	CUresult code;

	ck_assert_int_eq(ftruncate(fd, 2 * CHUNK), 0);
	code = call(client, &request, &fd, 1);
	close(fd);
	return code;
}

TEST(role, memory_is_carried_whole_and_nothing_else)
{
	struct client client;
	uint64_t at;

	prepare(&client, 1);
	at = client.window;
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, at, 2 * CHUNK, true), 0);
	ck_assert_int_eq(call_carry(&client, at, 2 * CHUNK, 0, false), 0);
	ck_assert_int_eq(call_carry(&client, at + CHUNK, CHUNK, CHUNK, true), 0);
	for (int into = 0; into < 2; into++) {
		ck_assert_int_eq(call_carry(&client, at, 0, 0, into), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(call_carry(&client, at, 4095, 0, into), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(call_carry(&client, at + 1, CHUNK, 0, into), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(call_carry(&client, at, CHUNK, 1, into), CUDA_ERROR_INVALID_VALUE);
		/* Beyond the memory, and beyond the file. */
		ck_assert_int_eq(
			call_carry(&client, at + CHUNK, 2 * CHUNK, 0, into), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(call_carry(&client, at, 2 * CHUNK, 4096, into), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(call_carry(&client, at, CHUNK, UINT64_MAX - CHUNK + 1, into),
			CUDA_ERROR_INVALID_VALUE);
	}
	ck_assert_int_eq(call_range(&client, WIRE_UNMAP_MEMORY, at, 2 * CHUNK, false), 0);
	ck_assert_int_eq(call_carry(&client, at, CHUNK, 0, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* The backend had no memory for it: the device may still write to the pages, until a later mark. */
TEST_LOOP(role, a_copy_without_a_mark_fails_and_the_next_one_works, 0, 2)
{
	struct wire_message request = {.type = WIRE_CARRY_MEMORY};
	int fd = memfd_create("swap", MFD_CLOEXEC);
	struct client client;
	uint64_t id;

	prepare(&client, 1);
	request.session = client.session;
	request.carry = (struct wire_carry){.address = client.window, .bytes = CHUNK, .into = _i};
	ck_assert_int_eq(ftruncate(fd, CHUNK), 0);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window, CHUNK, true), 0);
	fake_let_fail(FAKE_MARK, CUDA_ERROR_OUT_OF_MEMORY);
	id = send_request(&request, &fd, 1);
	while (!fake_count_failed(FAKE_MARK))
		sched_yield();
	fake_let_fail(FAKE_MARK, CUDA_SUCCESS);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_int_eq(message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(call_carry(&client, client.window, CHUNK, 0, _i), 0);
	close(fd);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

#define STASH window_of(77)

/* @client: whose memory is copied there; NULL: from there, to a file */
static uint64_t send_stash(
	struct client *client, uint64_t at, uint64_t bytes, uint64_t aside, bool with_file, bool into)
{
	struct wire_message request = {.type = client ? WIRE_CARRY_MEMORY : WIRE_CARRY_STASH,
		.session = client ? client->session : 0,
		.carry = {.address = at, .bytes = bytes, .aside = aside, .into = into}};
	int fd = memfd_create("swap", MFD_CLOEXEC);
	uint64_t id;

	ck_assert_int_eq(ftruncate(fd, 2 * CHUNK), 0);
	id = send_request(&request, &fd, with_file);
	close(fd);
	return id;
}

static CUresult call_stash(
	struct client *client, uint64_t at, uint64_t bytes, uint64_t aside, bool with_file, bool into)
{
	uint64_t id = send_stash(client, at, bytes, aside, with_file, into);

	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	return message.reply.code;
}

static void prepare_stash(struct client *client)
{
	prepare(client, 1);
	ck_assert_int_eq(call_range(client, WIRE_MAP_MEMORY, client->window, 2 * CHUNK, true), 0);
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH, 2 * CHUNK, false), 0);
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH, CHUNK, true), 0);
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH + CHUNK, CHUNK, true), 0);
}

TEST(role, memory_goes_to_the_stash_and_from_there_to_files)
{
	struct client client;
	const struct fake_call *copy;
	uint64_t at;

	prepare_stash(&client);
	at = client.window;
	ck_assert_int_eq(call_stash(&client, at, 2 * CHUNK, STASH, false, false), 0);
	copy = fake_call(FAKE_COPY, fake_count(FAKE_COPY) - 1);
	ck_assert_ptr_eq(copy->object, (void *)(uintptr_t)STASH);
	ck_assert_int_eq(call_stash(NULL, STASH, 2 * CHUNK, 0, true, false), 0);
	ck_assert_int_eq(call_stash(NULL, STASH + CHUNK, CHUNK, 0, true, false), 0);
	/* Not both, and never into the session's memory. */
	ck_assert_int_eq(call_stash(&client, at, CHUNK, STASH, true, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(&client, at, CHUNK, STASH, false, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(NULL, STASH, CHUNK, 0, false, false), CUDA_ERROR_INVALID_VALUE);
	/* Beyond the stash, or what is not its own. */
	ck_assert_int_eq(call_stash(&client, at, CHUNK, STASH + 1, false, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		call_stash(&client, at, 2 * CHUNK, STASH + CHUNK, false, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(&client, STASH, CHUNK, STASH, false, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(NULL, at, CHUNK, 0, true, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(NULL, STASH, 0, 0, true, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	/* Beyond what is reserved; and there is one reservation. */
	ck_assert_int_eq(
		call_range(NULL, WIRE_MAP_STASH, STASH + 2 * CHUNK, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		call_range(NULL, WIRE_MAP_STASH, STASH + 2 * CHUNK, CHUNK, false), CUDA_ERROR_INVALID_VALUE);
	/* As it was mapped. */
	ck_assert_int_eq(
		call_range(NULL, WIRE_UNMAP_STASH, STASH, 2 * CHUNK, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(NULL, WIRE_UNMAP_STASH, STASH, CHUNK, false), 0);
	ck_assert_int_eq(call_stash(&client, at, CHUNK, STASH, false, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(NULL, STASH, CHUNK, 0, true, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_stash(NULL, STASH + CHUNK, CHUNK, 0, true, false), 0);
	ck_assert_int_eq(call_range(NULL, WIRE_UNMAP_STASH, 0, 0, false), 0);
	ck_assert_int_eq(call_stash(NULL, STASH + CHUNK, CHUNK, 0, true, false), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 2);
	/* The addresses are free again; no command may name them. */
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH, CHUNK, true), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH, CHUNK, false), 0);
	ck_assert_int_eq(call_range(NULL, WIRE_MAP_STASH, STASH, CHUNK, true), 0);
	ck_assert(!may_set(&client, STASH));
	receive(WIRE_OFFENCE);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* A part waits for copies into it, and all of it for those out of it, too. */
TEST_LOOP(role, the_stash_stays_while_it_is_copied, 0, 2)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_STASH}, ping = {.type = WIRE_PING};
	struct client client;
	uint64_t copied, unmapped;
	unsigned marks;

	prepare_stash(&client);
	marks = fake_count(FAKE_MARK);
	fake.immediate = false;
	copied = _i ? send_stash(NULL, STASH, CHUNK, 0, true, false)
		    : send_stash(&client, client.window, CHUNK, STASH, false, false);
	while (fake_count(FAKE_MARK) == marks)
		sched_yield();
	unmap.range.address = _i ? 0 : STASH;
	unmap.range.bytes = _i ? 0 : CHUNK;
	unmapped = send_request(&unmap, NULL, 0);
	ck_assert_int_eq(call(NULL, &ping, NULL, 0), 0);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 0);
	fake.immediate = true;
	fake_arrive();
	for (int i = 0; i < 2; i++) {
		receive(WIRE_REPLY);
		ck_assert(message.id == copied || message.id == unmapped);
		ck_assert_int_eq(message.reply.code, 0);
	}
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), _i ? 2 : 1);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* Of those a hole may be left for which there is no page when the service reads it. */
TEST(role, memory_of_huge_pages_is_refused)
{
	struct wire_message request = {.type = WIRE_MAP_HOST};
	int fd = memfd_create("huge", MFD_HUGETLB | MFD_ALLOW_SEALING | MFD_CLOEXEC);
	struct client client;

	if (fd < 0)
		return; /* there are none on this machine */
	ck_assert_int_eq(ftruncate(fd, 2 << 20), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	open_client(&client, 1);
	request.range = (struct wire_range){.address = client.window + DEVICE_BYTES, .bytes = 4096};
	ck_assert_int_eq(call(&client, &request, &fd, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_nonnull(strstr(message.reply.text, "huge pages"));
	close(fd);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* An unmapping that waits for work holds up nobody else. */
TEST(role, waiting_is_private)
{
	struct client slow, other;
	struct wire_message request = {.type = WIRE_UNMAP_MEMORY};
	uint64_t id;

	prepare(&slow, 1);
	ck_assert_int_eq(call_range(&slow, WIRE_MAP_MEMORY, slow.window, CHUNK, true), 0);
	fake.immediate = false;
	launch(&slow, 1, 0);
	while (fake_count(FAKE_LAUNCH) == 0)
		sched_yield();
	request.session = slow.session;
	request.range = (struct wire_range){.address = slow.window, .bytes = CHUNK};
	id = send_request(&request, NULL, 0);
	open_client(&other, 2);
	activate(&other);
	ck_assert_int_eq(call_range(&other, WIRE_MAP_MEMORY, other.window, CHUNK, true), 0);
	/* The module thread answers too. (A load would have to wait for the gate.) */
	ck_assert_int_eq(call_symbol(&other, WIRE_LIST_FUNCTIONS, 1, 0, ""), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 0);
	while (!fake_arrive_one())
		sched_yield();
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_int_eq(message.reply.code, 0);
	ck_assert_uint_eq(close_tenant(&slow, 0), 1);
	ck_assert_uint_eq(close_tenant(&other, 0), 1);
	close_client(&slow);
	close_client(&other);
}

TEST(role, work_that_does_not_end)
{
	struct client client;

	prepare(&client, 1);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window, CHUNK, true), 0);
	fake.immediate = false;
	launch(&client, 1, 0);
	while (fake_count(FAKE_MARK) == 0)
		sched_yield();
	ck_assert_uint_eq(close_tenant(&client, 20), 0);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 0);
	ck_assert_uint_eq(fake_count(FAKE_STREAM_DESTROY), 0);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fake_arrive();
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 1);
	close_client(&client);
}

TEST(role, a_session_is_let_go_when_its_work_is_done)
{
	struct client client, other;
	uint64_t seq;

	prepare(&client, 1);
	prepare(&other, 2);
	fake.immediate = false;
	seq = launch(&client, 1, 0);
	while (fake_count(FAKE_MARK) == 0)
		sched_yield();
	/* What does not end goes on, and so does the session. */
	ck_assert_uint_eq(detach_tenant(&client, 20), 0);
	fake_arrive();
	fake.immediate = true;
	wait_for(&client, 1, seq);
	wait_for(&client, 1, launch(&client, 1, 0));
	ck_assert_uint_eq(detach_tenant(&client, 1000), 1);
	/* What comes now is another's to issue. */
	launch(&client, 1, 0);
	wait_for(&other, 1, launch(&other, 1, 0));
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_int_eq(call(&client, &(struct wire_message){.type = WIRE_DETACH_SESSION}, NULL, 0),
		CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	ck_assert_uint_eq(close_tenant(&other, 0), 1);
	close_client(&client);
	close_client(&other);
}

/* No other executor has served it. */
TEST(role, who_was_let_go_and_stays_is_served_again)
{
	struct client client;

	prepare(&client, 1);
	wait_for(&client, 1, launch(&client, 1, 0));
	ck_assert_uint_eq(detach_tenant(&client, 1000), 1);
	launch(&client, 1, 0);
	activate(&client);
	wait_for(&client, 1, launch(&client, 1, 0));
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

static void open_guard(struct client *client)
{
	struct wire_message request = {.type = WIRE_OPEN_GUARD};
	int fd = memory(NULL, CHUNK);

	request.open_guard = (struct wire_open_guard){.policy = 1, .interval_ms = 1000};
	ck_assert_int_eq(call(client, &request, &fd, 1), 0);
	close(fd);
}

/* Whoever serves it then looks at the same sink. */
TEST(role, who_is_let_go_takes_its_guard_along)
{
	struct client client;

	open_client(&client, 1);
	open_guard(&client);
	activate(&client);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window, CHUNK, true), 0);
	ck_assert_uint_ge(fake_count(FAKE_SINK_MAP), 2);
	ck_assert_uint_eq(detach_tenant(&client, 1000), 1);
	ck_assert_uint_eq(fake_count(FAKE_SINK_UNMAP), fake_count(FAKE_SINK_MAP));
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 0);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 1);
	close_client(&client);
}

/* Launches of others take the mutex of the driver that each of these calls takes, and have as much
 * of the time. */
TEST(role, the_end_of_much_goes_with_rests)
{
	struct client client;
	uint64_t begin, took, calls;

	open_client(&client, 1);
	activate(&client);
	for (uint32_t i = 0; i < STREAMS; i++) {
		const struct frmps_event_record body = {.event = i, .flags = FRMPS_EVENT_TIMING};

		put(&client,
			(struct frmps_head){.op = FRMPS_OP_EVENT_RECORD,
				.stream = i,
				.flags = FRMPS_CMD_MARK,
				.seq = ++client.seq[i]},
			&body, sizeof(body));
	}
	for (uint32_t i = 0; i < STREAMS; i++)
		wait_for(&client, i, client.seq[i]);
	fake.undo_ns = PACE_WORK_NS / 2;
	begin = clock_now();
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	took = clock_now() - begin;
	calls = fake_count(FAKE_STREAM_DESTROY) + fake_count(FAKE_EVENT_DESTROY);
	ck_assert_uint_ge(calls, 2 * STREAMS);
	/* Those behind the last rest, of each of three loops, have none behind them. */
	ck_assert_uint_ge(took - fake.undoing_ns, (calls - 6) * fake.undo_ns);
	fake.undo_ns = 0;
	close_client(&client);
}

/* The daemon halts an executor that does not say in time that a session has ended. */
TEST(role, programs_that_want_something_all_the_time_do_not_hold_up_the_end_of_another)
{
	struct wire_message close = {.type = WIRE_CLOSE_SESSION, .session = 1, .close_session = {1000}};
	struct wire_message want = {.type = WIRE_LIST_FUNCTIONS, .session = 2, .symbol = {1, 0, ""}};
	struct client ended, other;
	unsigned between = 0;
	uint64_t id;

	prepare(&ended, 1);
	prepare(&other, 2);
	for (uint64_t at = 0; at < DEVICE_BYTES; at += 2 * CHUNK)
		ck_assert_int_eq(call_range(&ended, WIRE_MAP_MEMORY, ended.window + at, CHUNK, true), 0);
	fake.undo_ns = OPEN_GIVES_WAY_NS / 4;
	id = send_request(&close, NULL, 0);
	send_request(&want, NULL, 0);
	for (receive(WIRE_REPLY); message.id != id; receive(WIRE_REPLY)) {
		unsigned undone = fake_count(FAKE_CHUNK_UNMAP);

		between += undone > 0 && undone < DEVICE_BYTES / (2 * CHUNK);
		send_request(&want, NULL, 0);
	}
	/* One was answered before the first mapping, and is seen later. */
	ck_assert_uint_le(between, 4 + 1);
	receive(WIRE_REPLY);
	fake.undo_ns = 0;
	close_client(&ended);
	close_client(&other);
}

/* Who is taken over goes on; a driver that is busy with the executor before holds up the filling of
 * sinks alone. */
TEST(role, nobody_waits_for_sinks_that_are_filled)
{
	struct client client;

	open_client(&client, 1);
	open_guard(&client);
	fake.stuck = 1;
	activate(&client);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	fake.stuck = 0;
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	ck_assert_uint_eq(fake_count(FAKE_SET), 1);
	close_client(&client);
}

/* Its serving thread is in a call that does not come back; whoever asks is answered all the
 * same. */
TEST(role, a_thread_that_does_not_come_back_holds_nobody_up)
{
	struct client client;
	uint64_t seq;

	prepare(&client, 1);
	fake.stuck = 1;
	seq = launch(&client, 1, 0);
	while (fake_count(FAKE_LAUNCH) == 0)
		sched_yield();
	ck_assert_int_eq(
		call(&client, &(struct wire_message){.type = WIRE_DETACH_SESSION}, NULL, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(message.reply.values.count, 0);
	ck_assert_int_eq(call(&client, &(struct wire_message){.type = WIRE_DETACH_SESSION}, NULL, 0),
		CUDA_ERROR_NOT_READY);
	fake.stuck = 0;
	wait_for(&client, 1, seq);
	wait_for(&client, 1, launch(&client, 1, 0));
	fake.stuck = 1;
	launch(&client, 1, 0);
	while (fake_count(FAKE_LAUNCH) < 3)
		sched_yield();
	ck_assert_uint_eq(close_tenant(&client, 0), 0);
	fake.stuck = 0;
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

/*
 * Work that does not end
 */

static struct wire_message over_limit(void)
{
	return (struct wire_message){.type = WIRE_END_KERNELS,
		.trouble = {.code = CUDA_ERROR_LAUNCH_TIMEOUT, .text = "it took too long"}};
}

/* One whose kernels, one in each of so many streams, do not end by themselves. */
static void prepare_endless(struct client *client, uint64_t session, uint32_t streams)
{
	prepare(client, session);
	fake.immediate = false;
	for (uint32_t i = 0; i < streams; i++) {
		launch(client, i, 0);
		while (fake_count(FAKE_MARK) <= i)
			sched_yield();
	}
}

TEST(role, a_program_over_its_limit_ends_and_others_go_on)
{
	struct wire_message request = over_limit();
	struct client client, other;

	prepare(&other, 2);
	fake.can_end = fake.ends = true;
	prepare_endless(&client, 1, 3);
	ck_assert_int_eq(call(&client, &request, NULL, 0), CUDA_SUCCESS);
	ck_assert_str_eq(message.reply.text, "kernel");
	/* One call for each, or one more where the end of the last is seen late, and never for
	 * anybody else's. */
	ck_assert_uint_ge(fake_count(FAKE_END), 3);
	for (unsigned i = 0; i < fake_count(FAKE_END); i++) {
		ck_assert_uint_eq(fake_call(FAKE_END, i)->value, 1);
		ck_assert_ptr_eq(fake_call(FAKE_END, i)->object, fake_call(FAKE_END, 0)->object);
	}
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(client.view.server->error, CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_str_eq(client.view.server->reason, "it took too long");
	fake.immediate = true;
	launch(&client, 1, 0);
	wait_for(&other, 1, launch(&other, 1, 0));
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 4);
	ck_assert_uint_eq(word_acquire(&other.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	ck_assert_uint_eq(message.reply.values.count, 1);
	ck_assert_uint_eq(close_tenant(&other, 0), 1);
	close_client(&client);
	close_client(&other);
}

TEST(role, a_program_that_waits_for_others_gets_no_error)
{
	struct wire_message request = over_limit();
	struct client client;

	fake.can_end = fake.ends = fake.waits = true;
	prepare_endless(&client, 1, 1);
	ck_assert_int_eq(call(&client, &request, NULL, 0), CUDA_SUCCESS);
	ck_assert_str_eq(message.reply.text, "");
	ck_assert_uint_eq(fake_count(FAKE_LOOK), 1);
	ck_assert_uint_eq(fake_count(FAKE_END), 0);
	fake_arrive();
	wait_for(&client, 0, client.seq[0]);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/* Asks for the end of session 1, until a call of the backend does not come back. Return: the
 * request's number */
static uint64_t stick(struct client *client, enum fake_kind in)
{
	struct wire_message request = over_limit();
	uint64_t id;

	fake.can_end = fake.ends = true;
	fake.end_stuck = in == FAKE_LOOK ? 2 : 1;
	prepare_endless(client, 1, 1);
	request.session = 1;
	id = send_request(&request, NULL, 0);
	while (!fake_count(in))
		sched_yield();
	return id;
}

/* Another session's module may have the same name by then. */
TEST(role, a_module_that_is_unloaded_before_the_stop_is_not_named)
{
	struct client client, other;
	uint64_t id;

	prepare(&other, 2);
	id = stick(&client, FAKE_LOOK);
	fake_arrive();
	wait_for(&client, 0, client.seq[0]);
	ck_assert_int_eq(call_symbol(&client, WIRE_UNLOAD_MODULE, 1, 0, ""), 0);
	ck_assert_int_eq(load(&other, 2, "M two"), 0);
	/* Nobody waits for it but this test. */
	while (!fake_count(FAKE_MODULE_UNLOAD))
		sched_yield();
	fake.end_stuck = 0;
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_uint_eq(fake_count(FAKE_END), 1);
	ck_assert_uint_eq(fake_call(FAKE_END, 0)->value, 0);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	ck_assert_uint_eq(close_tenant(&other, 0), 1);
	close_client(&client);
	close_client(&other);
}

/* The next executor has it then. */
TEST(role, a_session_of_an_executor_that_is_halted_gets_no_error)
{
	struct client client;

	stick(&client, FAKE_LOOK);
	send_request(&(struct wire_message){.type = WIRE_HALT}, NULL, 0);
	receive(WIRE_REPLY);
	fake.end_stuck = 0;
	for (int i = 0; i < 200 && !fake_count(FAKE_END); i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	ck_assert_uint_eq(fake_count(FAKE_END), 0);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	close_client(&client);
}

/* No kernel, or one that the backend cannot end; with an error it is not tried again. */
TEST_LOOP(role, what_cannot_be_ended_is_answered_in_time, 0, 2)
{
	struct wire_message request = over_limit();
	struct client client;

	fake.can_end = true;
	if (_i)
		fake.fails[FAKE_END] = CUDA_ERROR_UNKNOWN;
	prepare_endless(&client, 1, 1);
	ck_assert_int_eq(call(&client, &request, NULL, 0), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(fake_count(FAKE_END) + fake_count_failed(FAKE_END), _i ? 1 : 10);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_FAULTED);
	fake_arrive();
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

TEST(role, a_backend_that_ends_no_kernels_changes_nothing)
{
	struct wire_message request = over_limit();
	struct client client;

	prepare_endless(&client, 1, 1);
	ck_assert_int_eq(call(&client, &request, NULL, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(close_tenant(&client, 0), 0);
	fake_arrive();
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

TEST(role, kernels_of_a_program_that_is_gone_are_ended_behind_its_patience)
{
	struct client client;

	fake.can_end = true;
	prepare_endless(&client, 1, 2);
	/* It is said that they go on where they do. */
	ck_assert_uint_eq(close_tenant(&client, 20), 0);
	ck_assert_uint_eq(message.reply.values.count, 1);
	fake.ends = true;
	ck_assert_uint_eq(close_tenant(&client, 20), 1);
	ck_assert_uint_eq(message.reply.values.count, 3);
	ck_assert_uint_eq(message.reply.values.at[1], 0);
	ck_assert_uint_eq(message.reply.values.at[2], 1);
	ck_assert_uint_eq(fake_count(FAKE_END), 10 + 2);
	close_client(&client);
}

static const enum fake_kind stuck_in[] = {FAKE_END, FAKE_LOOK};

TEST_LOOP(role, nobody_waits_while_kernels_are_ended, 0, 2)
{
	struct client client, other;
	uint64_t id;

	prepare(&other, 2);
	id = stick(&client, stuck_in[_i]);
	ck_assert_int_eq(call(NULL, &(struct wire_message){.type = WIRE_PING}, NULL, 0), 0);
	ck_assert_int_eq(load(&other, 2, "M two"), 0);
	fake.immediate = true;
	wait_for(&other, 1, launch(&other, 1, 0));
	ck_assert_uint_eq(close_tenant(&other, 0), 1);
	fake.end_stuck = 0;
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_int_eq(message.reply.code, CUDA_SUCCESS);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
	close_client(&other);
}

/* The program may be gone while it is looked at, or before anything has ended. */
TEST_LOOP(role, a_session_is_closed_while_its_kernels_are_ended, 0, 2)
{
	struct wire_message close = {.type = WIRE_CLOSE_SESSION, .session = 1, .close_session = {60000}};
	struct wire_message request = over_limit();
	struct client client;
	uint64_t ids[2];

	ids[0] = stick(&client, stuck_in[_i]);
	ids[1] = send_request(&close, NULL, 0);
	fake_arrive();
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, ids[1]);
	ck_assert_uint_eq(message.reply.values.at[0], 1);
	fake.end_stuck = 0;
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, ids[0]);
	/* With any other answer the daemon would replace the executor. */
	ck_assert_int_eq(
		message.reply.code, stuck_in[_i] == FAKE_END ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(call(&client, &request, NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	close_client(&client);
}

TEST(role, one_that_ends_while_it_is_let_go)
{
	struct wire_message detach = {.type = WIRE_DETACH_SESSION, .session = 1, .close_session = {60000}};
	struct wire_message close = {.type = WIRE_CLOSE_SESSION, .session = 1, .close_session = {60000}};
	struct client client;
	uint64_t first, second;

	prepare(&client, 1);
	fake.immediate = false;
	launch(&client, 1, 0);
	while (fake_count(FAKE_MARK) == 0)
		sched_yield();
	first = send_request(&detach, NULL, 0);
	second = send_request(&close, NULL, 0);
	fake_arrive();
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, first);
	ck_assert_uint_eq(message.reply.values.at[0], 0);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, second);
	ck_assert_uint_eq(message.reply.values.at[0], 1);
	close_client(&client);
}

TEST(role, an_offence_is_reported_and_others_go_on)
{
	struct client bad, good;

	prepare(&bad, 1);
	prepare(&good, 2);
	bad.seq[1] = 10;
	launch(&bad, 1, 0);
	receive(WIRE_OFFENCE);
	ck_assert_uint_eq(message.session, 1);
	ck_assert_uint_eq(word_acquire(&bad.view.server->state), SHM_SESSION_CLOSED);
	wait_for(&good, 1, launch(&good, 1, 0));
	ck_assert_uint_eq(close_tenant(&bad, 0), 1);
	ck_assert_uint_eq(close_tenant(&good, 0), 1);
	close_client(&bad);
	close_client(&good);
}

TEST(role, idle_threads_sleep_and_wake)
{
	struct client client;

	prepare(&client, 1);
	for (int i = 0; i < 50; i++) {
		while (!word_acquire(&client.view.server->asleep))
			sched_yield();
		wait_for(&client, 1, launch(&client, 1, FRMPS_CMD_MARK));
	}
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

#define LATE 100u

static struct client *late_client;
static _Atomic unsigned late_launches, overslept;
static __thread bool serves_late; /* the calling thread serves that client */

/* In place of the C library's: whether a thread falls asleep over a launch that nobody has rung
 * for. */
int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *timeout,
	const sigset_t *signals)
{
	if (serves_late && fake.marked && fake_count(FAKE_LAUNCH) < late_launches + 1)
		overslept++;
	return (int)syscall(SYS_epoll_pwait2, epoll, events, most, timeout, signals, _NSIG / 8);
}

/* The client's launch, at the moment in which the thread that serves it is about to sleep and has
 * not said so yet: nobody rings. */
static void launch_late(void)
{
	serves_late = true;
	if (late_launches == LATE)
		return;
	late_launches++;
	launch(late_client, 1, 0);
}

/* The thread sanitizer knows nothing of fences. */
#ifdef __SANITIZE_THREAD__
#define FENCES_COUNT false
#else
#define FENCES_COUNT true
#endif

/* What is published before a thread says that it sleeps, it sees by a last look. */
TEST(role_2, a_launch_at_the_moment_of_falling_asleep_is_served)
{
	struct client client;

	prepare(&client, 1);
	while (!word_acquire(&client.view.server->asleep))
		sched_yield();
	late_client = &client;
	late_launches = overslept = 0;
	fake.marked = launch_late;
	launch(&client, 1, 0);
	while (late_launches < LATE || fake_count(FAKE_LAUNCH) < LATE + 1)
		sched_yield();
	fake.marked = NULL;
	ck_assert_uint_eq(overslept, 0);
	wait_for(&client, 1, client.seq[1]);
	ck_assert_uint_eq(close_tenant(&client, 0), 1);
	close_client(&client);
}

/*
 * What may not be unpinned while anything runs
 */

/* Work on the device that does not end before fake_arrive(). */
static void block_device(struct client *client)
{
	fake.immediate = false;
	launch(client, 1, FRMPS_CMD_MARK);
	while (fake_count(FAKE_MARK) == 0)
		sched_yield();
}

/* Beside a busy device the group is made when the first kernel is looked up, and the session's
 * serving thread sleeps then. */
TEST(role, what_a_capped_session_asks_before_its_first_command_is_answered_for_its_group)
{
	struct wire_message request = {.type = WIRE_FIND_FUNCTION, .session = 2, .symbol = {1, 1, "kernel+"}};
	struct client busy, capped;
	uint64_t id;

	prepare(&busy, 1);
	open_client(&capped, 2);
	ck_assert_int_eq(load(&capped, 1, "M"), 0);
	block_device(&busy);
	set_sms(&capped, 3);
	activate(&capped);
	while (!word_acquire(&capped.view.server->asleep))
		sched_yield();
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 0);
	id = send_request(&request, NULL, 0);
	fake.immediate = true;
	fake_arrive();
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_int_eq(message.reply.code, 0);
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 1);
	request = (struct wire_message){
		.type = WIRE_QUERY_OCCUPANCY, .occupancy = {.function = 1, .block_size = 128}};
	ck_assert_int_eq(call(&capped, &request, NULL, 0), 0);
	ck_assert_uint_eq(message.reply.values.at[0], 16 + BACKEND_SMS(0, 3));
	ck_assert_uint_eq(message.reply.values.at[1], 3);
	ck_assert_uint_eq(close_tenant(&capped, 1000), 1);
	ck_assert_uint_eq(close_tenant(&busy, 1000), 1);
	close_client(&capped);
	close_client(&busy);
}

TEST(role_3, nothing_is_unpinned_while_anything_runs)
{
	struct client busy, other;
	uint64_t host, freed, gone;

	prepare(&busy, 1);
	open_client(&other, 2);
	activate(&other);
	host = other.window + DEVICE_BYTES;
	ck_assert_int_eq(call_range(&other, WIRE_MAP_HOST, host, 8192, true), 0);
	block_device(&busy);
	ck_assert_int_eq(call_range(&other, WIRE_UNMAP_HOST, host, 8192, false), 0);
	ck_assert_uint_eq(message.reply.values.count, 1);
	ck_assert_uint_eq(message.reply.values.at[0], 8192);
	/* Its addresses stay taken; others are free. */
	ck_assert_int_eq(
		call_range(&other, WIRE_MAP_HOST, host + 4096, 4096, true), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(call_range(&other, WIRE_MAP_HOST, host + 8192, 4096, true), 0);
	freed = watch(&other, WIRE_UNMAP_HOST, host, 8192);
	ck_assert_uint_eq(close_tenant(&other, 1000), 1);
	ck_assert_uint_eq(message.reply.values.count, 2);
	ck_assert_uint_ge(message.reply.values.at[1], 8192 + 4096 + STREAM_WORDS_BYTES);
	gone = watch(&other, WIRE_CLOSE_SESSION, 0, 0);
	/* Both threads have had their turn. */
	ck_assert_int_eq(call_symbol(&busy, WIRE_LIST_FUNCTIONS, 1, 0, ""), 0);
	ck_assert_uint_eq(fake_count(FAKE_UNREGISTER), 0);
	fake_arrive();
	expect_over(freed);
	expect_over(gone);
	ck_assert_uint_eq(fake_count(FAKE_UNREGISTER), 3);
	ck_assert_int_eq(call(&other, &(struct wire_message){.type = WIRE_CLOSE_SESSION}, NULL, 0),
		CUDA_ERROR_INVALID_CONTEXT);
	fake.immediate = true;
	ck_assert_uint_eq(close_tenant(&busy, 1000), 1);
	if (message.reply.values.count > 1)
		see_it_over(&busy, WIRE_CLOSE_SESSION, 0, 0, CUDA_ERROR_INVALID_CONTEXT);
	close_client(&other);
	close_client(&busy);
}

/* Sanitizers make each many times as long, and a machine that is busy as well does. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ENDS 200
#else
#define ENDS 1000
#endif

/* All in the same window: its addresses are free again each time. */
TEST(role_3, many_ends_leave_nothing)
{
	struct client client;

	for (int i = 0; i < ENDS; i++) {
		open_client(&client, 5);
		activate(&client);
		ck_assert_int_eq(
			call_range(&client, WIRE_MAP_HOST, client.window + DEVICE_BYTES, 4096, true), 0);
		ck_assert_uint_eq(close_tenant(&client, 1000), 1);
		if (message.reply.values.count > 1)
			see_it_over(&client, WIRE_CLOSE_SESSION, 0, 0, CUDA_ERROR_INVALID_CONTEXT);
		close_client(&client);
	}
	/* All but the executor's own words, and its page for variables. */
	ck_assert_uint_eq(fake_count(FAKE_UNREGISTER), 2 * ENDS);
	ck_assert_uint_eq(fake_count(FAKE_REGISTER), 2 * ENDS + 2);
}

/* The limit is one MiB, the patience of the gate short: see start_tight(). */
TEST(little_memory_may_wait, what_waits_is_bounded)
{
	struct wire_message request = {.type = WIRE_OPEN_SESSION};
	struct client busy, gone, late;
	uint64_t host, over;

	prepare(&busy, 1);
	open_client(&gone, 2);
	open_client(&late, 3);
	activate(&late);
	host = late.window + DEVICE_BYTES;
	ck_assert_int_eq(call_range(&gone, WIRE_MAP_HOST, gone.window + DEVICE_BYTES, HOST_BYTES, true), 0);
	block_device(&busy);
	ck_assert_int_eq(call_range(&late, WIRE_MAP_HOST, host, 4096, true), 0);
	ck_assert_uint_eq(close_tenant(&gone, 0), 1);
	ck_assert_uint_eq(message.reply.values.count, 2);
	over = watch(&gone, WIRE_CLOSE_SESSION, 0, 0);
	/* The gate was tried. Refused rather than stopping the one that runs, or the others behind
	 * it. */
	ck_assert_int_eq(call_range(&late, WIRE_MAP_HOST, host + 4096, 4096, true), CUDA_ERROR_OUT_OF_MEMORY);
	request.open_session = (struct wire_open_session){.window_base = window_of(4),
		.device_bytes = DEVICE_BYTES,
		.host_bytes = HOST_BYTES,
		.shape = late.view.shape,
		.program = "refused"};
	ck_assert_int_eq(call(&(struct client){.session = 4}, &request,
				 (int[]){late.client_fd, late.server_fd, late.doorbell}, 3),
		CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(fake_count(FAKE_UNREGISTER), 0);
	fake_arrive();
	expect_over(over);
	ck_assert_int_eq(call_range(&late, WIRE_MAP_HOST, host + 4096, 4096, true), 0);
	fake.immediate = true;
	ck_assert_uint_eq(close_tenant(&busy, 1000), 1);
	ck_assert_uint_eq(close_tenant(&late, 1000), 1);
	close_client(&gone);
	close_client(&late);
	close_client(&busy);
}

static CUresult open_as(const struct client *like, uint64_t session, uint32_t user)
{
	struct wire_message request = {.type = WIRE_OPEN_SESSION};

	request.open_session = (struct wire_open_session){.window_base = window_of(session),
		.device_bytes = DEVICE_BYTES,
		.host_bytes = HOST_BYTES,
		.shape = like->view.shape,
		.program = "a user's",
		.user = user};
	return call(&(struct client){.session = session}, &request,
		(int[]){like->client_fd, like->server_fd, like->doorbell}, 3);
}

/* Its other threads have that user's rights as well. */
static void *may_become_root(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)(syscall(SYS_setresuid, 0, 0, 0) == 0);
}

TEST(role_4, an_executor_becomes_its_first_sessions_user)
{
	struct client first;
	pthread_t thread;
	void *could;

	open_client(&first, 1);
	ck_assert_int_eq(open_as(&first, 2, 12345), CUDA_SUCCESS);
	ck_assert_uint_eq(getuid(), 12345);
	ck_assert_uint_eq(geteuid(), 12345);
	ck_assert_uint_eq(getegid(), 65534);
	ck_assert_int_eq(getgroups(0, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, may_become_root, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &could), 0);
	ck_assert_ptr_null(could);
	ck_assert_int_eq(open_as(&first, 3, 12346), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(open_as(&first, 3, 0), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(open_as(&first, 3, 12345), CUDA_SUCCESS);
	close_client(&first);
}

static void start_by_hand(void)
{
	fake_reset();
	fake.immediate = true;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
	ck_assert_int_eq(executor_init(&by_hand, &fake_ops, control[0], 1), 0);
}

static void stop_by_hand(void)
{
	executor_deinit(&by_hand);
	by_hand.ops = NULL;
	close(control[0]);
	close(control[1]);
}

static unsigned count_jobs(pthread_mutex_t *lock, const struct job_list *list)
{
	const struct job *job;
	unsigned count = 0;

	pthread_mutex_lock(lock);
	TAILQ_FOREACH (job, list, link)
		count++;
	pthread_mutex_unlock(lock);
	return count;
}

static _Atomic bool may_go_on;

static void hold_up(struct job *job)
{
	while (!may_go_on)
		sched_yield();
	job_free(job);
}

/* The module thread comes to what a client asked for only when its session is about to go; and the
 * main thread to what that waits for when the session has gone. */
TEST(the_main_thread_is_slow, what_was_asked_for_long_ago_does_not_outlive_the_session)
{
	struct wire_message unload = {.type = WIRE_UNLOAD_MODULE, .session = 1, .symbol = {1, 0, ""}};
	struct wire_message close = {.type = WIRE_CLOSE_SESSION, .session = 1, .close_session = {60000}};
	struct module_worker *worker = &by_hand.modules;
	struct job_board *board = &by_hand.board;
	struct job *job = job_new(&by_hand);
	struct client client;
	uint64_t unloaded, closed;

	prepare(&client, 1);
	module_worker_queue(job, hold_up);
	while (count_jobs(&worker->queue.lock, &worker->queue.jobs))
		sched_yield();
	unloaded = send_request(&unload, NULL, 0);
	closed = send_request(&close, NULL, 0);
	while (count_jobs(&worker->queue.lock, &worker->queue.jobs) < 2)
		step_by_hand();
	may_go_on = true;
	while (count_jobs(&board->lock, &board->arrivals) < 2)
		sched_yield();
	job_board_step(board, clock_now());
	while (!has_message(control[1]))
		sched_yield();
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, closed);
	ck_assert_uint_eq(message.reply.values.count, 1);
	ck_assert_uint_eq(message.reply.values.at[0], 1);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, unloaded);
	ck_assert_int_eq(message.reply.code, CUDA_ERROR_NOT_READY);
	close_client(&client);
}

/* The thread that lets it go places the last mark, and nobody could tell without that its work is
 * done. */
TEST_LOOP(the_main_thread_is_slow, a_last_mark_that_fails_is_tried_again, 0, 2)
{
	struct wire_message requests[] = {
		{.type = WIRE_DETACH_SESSION, .session = 1, .close_session = {2000}},
		{.type = WIRE_CLOSE_SESSION, .session = 1, .close_session = {2000}}};
	struct client client;
	struct tenant *tenant;
	unsigned failed;
	uint64_t id;

	prepare(&client, 1);
	tenant = executor_tenant(&by_hand, 1);
	fake_let_fail(FAKE_MARK, CUDA_ERROR_OUT_OF_MEMORY);
	launch(&client, 1, 0);
	while (fake_count(FAKE_LAUNCH) == 0)
		sched_yield();
	id = send_request(&requests[_i], NULL, 0);
	while (tenant->exit == TENANT_STAYS)
		step_by_hand();
	while (word_acquire(&tenant->thread->ordered))
		sched_yield();
	failed = fake_count_failed(FAKE_MARK);
	while (word_acquire(&tenant->served) && fake_count_failed(FAKE_MARK) < failed + 3)
		sched_yield();
	fake_let_fail(FAKE_MARK, CUDA_SUCCESS);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_uint_eq(message.reply.values.at[0], 1);
	close_client(&client);
}

TEST(role, an_executor_without_descriptors_refuses_what_comes_with_some)
{
	struct wire_message ping = {.type = WIRE_PING};
	struct rlimit before, few;
	int fd = memory(NULL, 4096), first;
	CUresult code;

	ck_assert_int_eq(call(NULL, &ping, &fd, 1), 0);
	ck_assert_int_eq(call(NULL, &ping, NULL, 0), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	first = dup(fd);
	close(first);
	few = (struct rlimit){.rlim_cur = (rlim_t)first, .rlim_max = before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	code = call(NULL, &ping, &fd, 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_int_eq(code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(call(NULL, &ping, &fd, 1), 0);
	close(fd);
}

/* So many ranges that room for one more does not fit what malloc() has at hand. */
#define RANGES 65536u

static void fill_up(struct range_set *set, uint64_t address)
{
	for (uint32_t i = set->count; i < RANGES; i++)
		ck_assert_int_eq(range_set_add(set, address + i * UINT64_C(8192), 4096), 0);
	ck_assert_uint_eq(set->count, set->room);
}

TEST(the_main_thread_is_slow_2, what_cannot_be_withdrawn_stays_as_it_was)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_MEMORY, .session = 1};
	struct job *job = job_new(&by_hand);
	struct client client;
	uint64_t id;

	open_client(&client, 1);
	ck_assert_int_eq(call_range(&client, WIRE_MAP_MEMORY, client.window, CHUNK, true), 0);
	fill_up(&executor_tenant(&by_hand, 1)->device, client.window + DEVICE_BYTES);
	unmap.range = (struct wire_range){.address = client.window, .bytes = CHUNK};
	job->message = unmap;
	scarce_begin();
	executor_handle(&by_hand, job);
	scarce_end();
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 0);
	/* Somebody waits for it. */
	receive(WIRE_REPLY);
	ck_assert_int_eq(message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	id = send_request(&unmap, NULL, 0);
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_int_eq(message.reply.code, CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_CHUNK_UNMAP), 1);
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

/* It is said that they go on. */
TEST(the_main_thread_is_slow_2, kernels_that_there_is_no_memory_to_end_go_on)
{
	struct wire_message close = {.type = WIRE_CLOSE_SESSION, .session = 1};
	struct client client;
	uint64_t id;

	fake.can_end = fake.ends = true;
	prepare_endless(&client, 1, 2);
	id = send_request(&close, NULL, 0);
	step_by_hand();
	while (!has_message(control[1])) {
		scarce_begin();
		job_board_step(&by_hand.board, clock_now());
		scarce_end();
	}
	receive(WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	ck_assert_uint_eq(message.reply.values.at[0], 0);
	ck_assert_uint_eq(fake_count(FAKE_END), 0);
	ck_assert_uint_eq(close_tenant(&client, 20), 1);
	close_client(&client);
}

/* The module thread is at something while a program gives pinned memory back and gets some at the
 * same address. */
TEST(the_main_thread_is_slow, a_standby_pins_again_behind_what_it_unpins)
{
	struct wire_message map = {.type = WIRE_MAP_HOST, .session = 1};
	struct wire_message ping = {.type = WIRE_PING};
	struct job *job = job_new(&by_hand);
	struct client client;
	uint64_t host, pinged;
	unsigned registered;
	int fd = memory(NULL, 4096);

	open_client(&client, 1);
	host = client.window + DEVICE_BYTES;
	ck_assert_int_eq(call_range(&client, WIRE_MAP_HOST, host, 4096, true), 0);
	registered = fake_count(FAKE_REGISTER);
	module_worker_queue(job, hold_up);
	watch(&client, WIRE_UNMAP_HOST, host, 4096);
	map.range = (struct wire_range){.address = host, .bytes = 4096};
	send_request(&map, &fd, 1);
	pinged = send_request(&ping, NULL, 0);
	for (int i = 0; i < 3; i++) {
		receive(WIRE_REPLY);
		ck_assert_int_eq(message.reply.code, CUDA_SUCCESS);
		may_go_on = message.id == pinged || may_go_on;
	}
	ck_assert_int_ge(fake_position(FAKE_UNREGISTER, 0), 0);
	ck_assert_int_lt(fake_position(FAKE_UNREGISTER, 0), fake_position(FAKE_REGISTER, registered));
	close(fd);
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

static void pretend_waiting(uint64_t bytes)
{
	pthread_mutex_lock(&by_hand.deferred.lock);
	by_hand.deferred.bytes = bytes;
	pthread_mutex_unlock(&by_hand.deferred.lock);
}

/* Programs end and start at the same moment: what those leave pinned is no reason to refuse these,
 * unless it stays. */
TEST(the_main_thread_is_slow, who_comes_while_much_waits_is_served)
{
	struct client client;
	struct wire_message request = {.type = WIRE_OPEN_SESSION};

	pretend_waiting(4 * deferred_limit);
	open_client(&client, 1);
	by_hand.deferred.stuck = true;
	request.open_session = (struct wire_open_session){.window_base = window_of(2),
		.device_bytes = DEVICE_BYTES,
		.host_bytes = HOST_BYTES,
		.shape = client.view.shape,
		.program = "refused"};
	ck_assert_int_eq(call(&(struct client){.session = 2}, &request,
				 (int[]){client.client_fd, client.server_fd, client.doorbell}, 3),
		CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_str_ne(message.reply.text, "");
	pretend_waiting(0);
	by_hand.deferred.stuck = false;
	ck_assert_uint_eq(close_tenant(&client, 1000), 1);
	close_client(&client);
}

static void start_tight(void)
{
	deferred_limit = UINT64_C(1) << 20;
	start_executor();
}

/* The process ends with sessions open: run in the test's own process, which is forked. */
TEST(no_device, a_device_that_is_not_there)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(executor_main(&fake_ops, 9, pair[0], -1), EXIT_FAILURE);
	control[1] = pair[1];
	receive(WIRE_LOST);
	ck_assert_int_eq(message.trouble.code, CUDA_ERROR_INVALID_DEVICE);
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	Suite *suite = suite_create("executor");
	TCase *role = suite_case(suite, "role"), *no_role = suite_case(suite, "no device");
	TCase *tight = suite_case(suite, "little memory may wait"),
	      *slow = suite_case(suite, "the main thread is slow");

	tcase_add_checked_fixture(role, start, stop);
	suite_add(role, "role");
	if (FENCES_COUNT)
		suite_add(role, "role_2");
	suite_add(role, "role_3");
	if (geteuid() == 0)
		suite_add(role, "role_4");
	tcase_add_checked_fixture(tight, start_tight, stop);
	suite_add(tight, "little_memory_may_wait");
	tcase_add_checked_fixture(slow, start_by_hand, stop_by_hand);
	suite_add(slow, "the_main_thread_is_slow");
	if (SCARCE_POSSIBLE) {
		suite_add(slow, "the_main_thread_is_slow_2");
	}
	suite_add(no_role, "no_device");
	return suite_run(suite);
}

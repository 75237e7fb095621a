// See fixture.h.

#include "tests/unit/server/executor/fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/serve.h"

struct fixture fixture;

static void open_executor(void)
{
	struct executor *executor = &fixture.executor;

	*executor = (struct executor){.ops = &fake_ops, .control_fd = fixture.control[0]};
	executor->device.priority_greatest = -5;
	TAILQ_INIT(&executor->tenants);
	shares_init(&executor->shares, &executor->sharing);
	caps_init(&executor->caps);
	pthread_mutex_init(&executor->control_lock, NULL);
	outbox_init(&executor->outbox);
	pthread_mutex_init(&executor->tenants_lock, NULL);
	pthread_mutex_init(&executor->ends_lock, NULL);
	ck_assert_int_eq(job_board_init(&executor->board), 0);
	executor->scratch = calloc(EXECUTOR_SCRATCH_WORDS, sizeof(uint64_t));
}

static void close_executor(void)
{
	outbox_deinit(&fixture.executor.outbox);
	job_board_deinit(&fixture.executor.board);
	free(fixture.executor.scratch);
}

static void add_function(struct tenant *tenant, uint32_t id)
{
	function_word *functions = calloc(FUNCTION_MAX, sizeof(*functions));
	struct function *function = calloc(1, sizeof(*function));

	function->name = strdup("scale");
	function->info.argument_bytes = 8;
	functions[id] = function;
	tenant->modules.functions = functions;
}

static void free_functions(struct tenant *tenant)
{
	function_word *functions = tenant->modules.functions;

	free(functions[1]->name);
	free(functions[1]);
	free(functions);
}

/* A session as OpenSession leaves it. */
static void open_tenant(const struct wire_shape *shape)
{
	struct tenant *tenant = tenant_new(&fixture.executor, 77);

	strcpy(tenant->program, "test");
	tenant->window_base = FIXTURE_WINDOW;
	tenant->device_bytes = FIXTURE_DEVICE;
	tenant->host_bytes = FIXTURE_HOST;
	tenant->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	tenant->server_fd = fcntl(fixture.server_fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_eq(
		shm_view_map(&tenant->view, shape, fixture.client_fd, fixture.server_fd, SHM_SIDE_SERVER), 0);
	takeover_prepare(tenant);
	range_set_add(&tenant->device, FIXTURE_WINDOW, FIXTURE_DEVICE / 2);
	range_set_add(&tenant->host, (uintptr_t)fixture.host, 4096);
	add_function(tenant, 1);
	TAILQ_INSERT_TAIL(&fixture.executor.tenants, tenant, link);
	fixture.tenant = tenant;
}

static void close_tenant(void)
{
	struct tenant *tenant = fixture.tenant;

	TAILQ_REMOVE(&fixture.executor.tenants, tenant, link);
	for (uint32_t slot = 0; slot < tenant->known; slot++)
		stream_close(tenant, &tenant->streams[slot]);
	if (tenant->poll_stream)
		fake_ops.stream_destroy(tenant->poll_stream);
	event_table_deinit(tenant, &tenant->events);
	graph_table_deinit(tenant);
	free_functions(tenant);
	shm_view_unmap(&tenant->view);
	close(tenant->doorbell);
	close(tenant->server_fd);
	tenant_unref(tenant);
}

void fixture_open(uint32_t blocks)
{
	void *host = (void *)(uintptr_t)(FIXTURE_WINDOW + FIXTURE_DEVICE);
	struct wire_shape shape;

	fake_reset();
	memset(&fixture, 0, sizeof(fixture));
	fixture.now = UINT64_C(1000000000);
	fixture.host = mmap(
		host, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_ptr_eq(fixture.host, host);
	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fixture.control), 0);
	shm_shape_init(&shape, 1u << 20, 1u << 20, blocks);
	ck_assert_int_eq(shm_region_new(&shape, &fixture.client_fd, &fixture.server_fd), 0);
	ck_assert_int_eq(
		shm_view_map(&fixture.client, &shape, fixture.client_fd, fixture.server_fd, SHM_SIDE_CLIENT),
		0);
	ring_writer_init(&fixture.ring, &fixture.client);
	open_executor();
	open_tenant(&shape);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 1, TAKEOVER_NOTHING, 0, ""), TAKEOVER_CLEAN);
}

void fixture_open_default(void)
{
	fixture_open(64);
}

void fixture_close(void)
{
	close_tenant();
	close_executor();
	shm_view_unmap(&fixture.client);
	close(fixture.client_fd);
	close(fixture.server_fd);
	close(fixture.control[0]);
	close(fixture.control[1]);
	munmap(fixture.host, 4096);
}

void fixture_kill(void)
{
	struct wire_shape shape = fixture.client.shape;

	close_tenant();
	close_executor();
	open_executor();
	open_tenant(&shape);
}

enum takeover_verdict fixture_take_over(enum takeover_recover recover)
{
	uint32_t generation = word_acquire(&fixture.client.server->generation) + 1;

	fixture_kill();
	return takeover_tenant(fixture.tenant, generation, recover, CUDA_ERROR_ILLEGAL_ADDRESS,
		"somebody else's kernel faulted");
}

static void put(const struct frmps_head *template, const void *body, uint32_t bytes)
{
	struct frmps_head head = *template;
	uint8_t *at;

	head.size = (uint32_t)((sizeof(head) + bytes + 15) / 16 * 16);
	at = ring_reserve(&fixture.ring, head.size);
	ck_assert_ptr_nonnull(at);
	memset(at, 0, head.size);
	memcpy(at, &head, sizeof(head));
	if (bytes)
		memcpy(at + sizeof(head), body, bytes);
	ring_publish(&fixture.ring, head.size);
}

uint64_t fixture_put(enum frmps_op op, uint32_t stream, uint16_t flags, const void *body, uint32_t bytes)
{
	uint64_t seq = ++fixture.seq[stream];

	put(&(struct frmps_head){.op = (uint16_t)op, .stream = stream, .flags = flags, .seq = seq}, body,
		bytes);
	return seq;
}

void fixture_direct(enum frmps_op op, uint32_t stream, const void *body, uint32_t bytes)
{
	put(&(struct frmps_head){.op = (uint16_t)op, .stream = stream}, body, bytes);
}

const struct frmps_launch fixture_single = {.function = 1,
	.grid_x = 1,
	.grid_y = 1,
	.grid_z = 1,
	.block_x = 1,
	.block_y = 1,
	.block_z = 1,
	.argument_bytes = 8};

uint64_t fixture_launch(uint32_t stream, uint16_t flags, uint8_t argument)
{
	struct {
		struct frmps_launch launch;
		uint8_t arguments[8];
	} body = {fixture_single, {argument}};

	return fixture_put(FRMPS_OP_LAUNCH, stream, flags, &body, sizeof(body));
}

uint64_t fixture_copy(uint32_t stream, uint64_t dst, uint64_t src, uint64_t bytes, uint32_t kind)
{
	struct frmps_copy body = {
		.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1, .kind = kind};

	return fixture_put(FRMPS_OP_COPY, stream, 0, &body, sizeof(body));
}

uint64_t fixture_set(uint32_t stream, uint64_t dst, uint64_t bytes)
{
	struct frmps_set body = {.dst = dst, .width = bytes, .height = 1, .element_bytes = 1};

	return fixture_put(FRMPS_OP_SET, stream, 0, &body, sizeof(body));
}

uint64_t fixture_depend(uint32_t stream, uint32_t on, uint64_t seq, uint32_t event)
{
	struct frmps_depend body = {.stream = on, .seq = seq, .event = event};

	return fixture_put(FRMPS_OP_DEPEND, stream, 0, &body, sizeof(body));
}

void fixture_turn(void)
{
	while (serve_turn(fixture.tenant, fixture.now))
		;
}

void fixture_pass(uint64_t us)
{
	fixture.now += us * CLOCK_US;
	fixture_turn();
}

uint64_t fixture_done(uint32_t stream)
{
	return shm_view_done(&fixture.client, stream);
}

uint32_t fixture_state(void)
{
	return word_acquire(&fixture.client.server->state);
}

unsigned fixture_offences(void)
{
	static struct packet packet;
	static struct wire_message message;
	unsigned offences = 0;

	while (packet_receive(fixture.control[1], &packet) == 0) {
		ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
		offences += message.type == WIRE_OFFENCE;
		packet_close_fds(&packet);
	}
	return offences;
}

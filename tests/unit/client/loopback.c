// See loopback.h. One thread in the child: polls the socket and the doorbell, executes the ring in
// its own order. A command that must wait (for a word, for a host function) keeps everything behind
// it waiting.

#include "tests/unit/client/loopback.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/link/connect.h"
#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "shm/doorbell.h"
#include "shm/ring.h"

#define DEVICE_PART (UINT64_C(192) << 30)
#define HOST_PART   (UINT64_C(64) << 30)
/* Commands after which a mark comes unasked. */
#define MARK_EVERY 32

struct loopback *loopback;

static pid_t child;
static char folder[64], path[96];

/* The child's state. */
static struct {
	int socket, doorbell;
	struct shm_view view;
	struct ring_reader ring;
	uint64_t window;
	uint64_t seq[SHM_STREAMS]; /* executed */
	unsigned int unmarked[SHM_STREAMS];
	uint64_t ns, timed_place; /* the latest timed record */
	uint32_t timed;
} self;

#define RULE(holds)                                                                                          \
	do {                                                                                                 \
		if (!(holds) && !word_relaxed(&loopback->broken))                                            \
			word_set(&loopback->broken, __LINE__);                                               \
	} while (0)

static struct shm_timeline_entry *timeline(uint32_t slot)
{
	uint32_t generation = word_relaxed(&self.view.server->generation);

	return shm_timeline_at(shm_view_timeline(&self.view, generation), slot);
}

static void mark(uint32_t slot)
{
	word_release(&timeline(slot)->done, self.seq[slot]);
	self.unmarked[slot] = 0;
}

static void note(const struct frmps_head *head, const void *body)
{
	uint32_t n = word_relaxed(&loopback->count);
	const struct frmps_depend *depend = body;

	if (n < LOOPBACK_NOTES) {
		loopback->notes[n] = (struct loopback_note){
			.op = head->op, .flags = head->flags, .stream = head->stream, .seq = head->seq};
		loopback->notes[n].part = shm_view_entry(&self.view, head->stream)->part;
		if (head->op == FRMPS_OP_DEPEND) {
			loopback->notes[n].other_stream = depend->stream;
			loopback->notes[n].other_seq = depend->seq;
		}
	}
	word_release(&loopback->count, n + 1);
}

static uint8_t *side(uint64_t address, bool arena, uint64_t bytes)
{
	if (arena) {
		RULE(address + bytes <= self.view.shape.arena_bytes);
		return self.view.arena + address;
	}
	RULE(address - self.window < DEVICE_PART + HOST_PART);
	return (uint8_t *)(uintptr_t)address;
}

static void copy(const struct frmps_copy *c)
{
	uint64_t dst_bytes = ((c->depth - 1) * c->dst_rows + c->height - 1) * c->dst_pitch + c->width;
	uint64_t src_bytes = ((c->depth - 1) * c->src_rows + c->height - 1) * c->src_pitch + c->width;
	uint8_t *dst = side(c->dst, c->kind & FRMPS_COPY_DST_ARENA, dst_bytes);
	uint8_t *src = side(c->src, c->kind & FRMPS_COPY_SRC_ARENA, src_bytes);

	RULE(c->width && c->height && c->depth);
	for (uint64_t z = 0; z < c->depth; ++z)
		for (uint64_t y = 0; y < c->height; ++y)
			memmove(dst + (z * c->dst_rows + y) * c->dst_pitch,
				src + (z * c->src_rows + y) * c->src_pitch, c->width);
}

static void set(const struct frmps_set *s)
{
	uint8_t *dst = side(s->dst, false, s->width * s->element_bytes);

	for (uint64_t y = 0; y < s->height; ++y)
		for (uint64_t x = 0; x < s->width; ++x)
			memcpy(dst + y * s->pitch + x * s->element_bytes, &s->value, s->element_bytes);
}

static bool fulfilled(const struct frmps_wait_value *w)
{
	uint64_t now = 0;

	memcpy(&now, (const void *)(uintptr_t)w->address, w->bytes);
	switch (w->flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return now >= w->value;
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == w->value;
	default:
		return (now & w->value) != 0;
	}
}

/* Return: whether the function has run. */
static bool host_function(const struct frmps_head *head)
{
	word64 *ready = &self.view.states[head->stream].host_ready;

	if (word_relaxed(ready) < head->seq) {
		word_release(ready, head->seq);
		wake_all(&self.view.server->wake);
	}
	return word_acquire(&self.view.client->host[head->stream].done) >= head->seq;
}

/* Of two generations' own clocks nothing can be compared. */
static void publish_time(uint32_t event, uint64_t place, uint64_t ns)
{
	struct shm_time *at = &self.view.times[event];
	uint64_t generation = word_relaxed(&self.view.server->generation);

	word_set(&at->epoch, generation);
	word_set(&at->local, ns + generation * 1000000007);
	word_set(&at->device, ns + 12345);
	word_release(&at->record, place);
}

/* A timed event is reached 1.5 ms after the one before it. */
static void record_time(const struct frmps_head *head, const struct frmps_event_record *record)
{
	uint64_t place = shm_place(head->stream, head->seq);

	if (!(record->flags & FRMPS_EVENT_TIMING))
		return;
	self.ns += 1500000;
	if (!word_relaxed(&loopback->slow_times))
		publish_time(record->event, place, self.ns);
	self.timed = record->event;
	self.timed_place = place;
}

/* Return: false if the command must wait. */
static bool execute(const struct frmps_head *head, const uint8_t *record)
{
	const void *body = record + sizeof(*head);
	const struct frmps_write_value *write = body;
	const struct frmps_depend *depend = body;

	switch (head->op) {
	case FRMPS_OP_COPY:
		copy(body);
		return true;
	case FRMPS_OP_SET:
		set(body);
		return true;
	case FRMPS_OP_DEPEND:
		RULE(depend->seq <= self.seq[depend->stream]);
		return true;
	case FRMPS_OP_WRITE_VALUE:
		memcpy(side(write->address, false, write->bytes), &write->value, write->bytes);
		return true;
	case FRMPS_OP_WAIT_VALUE:
		return fulfilled(body);
	case FRMPS_OP_HOST_FUNCTION:
		return host_function(head);
	case FRMPS_OP_EVENT_RECORD:
		record_time(head, body);
		return true;
	default:
		return true;
	}
}

static void directive(const struct frmps_head *head, const uint8_t *record)
{
	const struct frmps_wake *wake = (const void *)(record + sizeof(*head));

	RULE(head->seq == 0);
	if (head->op == FRMPS_OP_MARK)
		mark(head->stream);
	if (head->op == FRMPS_OP_WAKE) {
		RULE(wake->seq <= self.seq[head->stream]);
		mark(head->stream);
		if (self.timed_place && word_relaxed(&loopback->slow_times) == 1)
			publish_time(self.timed, self.timed_place, self.ns);
		wake_all(&self.view.server->wake);
	}
}

static bool command(const struct frmps_head *head, const uint8_t *record)
{
	if (!execute(head, record))
		return false;
	RULE(head->seq == self.seq[head->stream] + 1);
	self.seq[head->stream] = head->seq;
	RULE(head->seq - word_relaxed(&timeline(head->stream)->done) <=
		SHM_STREAM_CREDIT + (head->op == FRMPS_OP_STREAM_DESTROY));
	if ((head->flags & FRMPS_CMD_MARK) || ++self.unmarked[head->stream] == MARK_EVERY)
		mark(head->stream);
	return true;
}

/* Return: whether anything moved. */
static bool turn(void)
{
	struct frmps_head head;
	const uint8_t *record;
	bool is_directive;
	int r = ring_peek(&self.ring, &head, &record);

	RULE(r != RING_E_INVALID);
	if (r != 0)
		return false;
	is_directive = head.op == FRMPS_OP_MARK || head.op == FRMPS_OP_WAKE || head.op == FRMPS_OP_PAD;
	/* A directive is counted before the library can see what it does. */
	if (is_directive && head.op != FRMPS_OP_PAD)
		note(&head, record + sizeof(head));
	if (is_directive)
		directive(&head, record);
	else if (!command(&head, record))
		return false;
	else
		note(&head, record + sizeof(head));
	ring_consume(&self.ring, head.size);
	return true;
}

static void reply(
	const struct wire_message *request, CUresult code, const uint64_t *values, uint32_t count, int fd)
{
	static struct wire_message answer;

	answer = (struct wire_message){.type = WIRE_REPLY, .id = request->id};
	answer.reply.code = (int32_t)code;
	answer.reply.values = (struct wire_u64s){.at = values, .count = count};
	RULE(message_send(self.socket, &answer, &fd, fd >= 0 ? 1 : 0) == 0);
}

static void map_memory(const struct wire_message *m)
{
	void *at = (void *)(uintptr_t)m->range.address;
	bool full = word_relaxed(&loopback->out_of_memory) ||
		    word_relaxed(&loopback->mapped) + m->range.bytes > word_relaxed(&loopback->room);

	if (full) {
		reply(m, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, -1);
		return;
	}
	RULE(m->range.address % 0x200000 == 0 && m->range.bytes % 0x200000 == 0);
	RULE(mmap(at, m->range.bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == at);
	atomic_fetch_add(&loopback->mapped, m->range.bytes);
	atomic_fetch_add(&loopback->maps, 1);
	reply(m, CUDA_SUCCESS, NULL, 0, -1);
}

static void unmap(const struct wire_message *m)
{
	if (m->type == WIRE_UNMAP_MEMORY)
		atomic_fetch_sub(&loopback->mapped, m->range.bytes);
	munmap((void *)(uintptr_t)m->range.address, m->range.bytes);
	reply(m, CUDA_SUCCESS, NULL, 0, -1);
}

static void map_host(const struct wire_message *m)
{
	void *at = (void *)(uintptr_t)m->range.address;
	int fd = memfd_create("pinned", MFD_CLOEXEC);

	RULE(fd >= 0 && ftruncate(fd, (off_t)m->range.bytes) == 0);
	RULE(mmap(at, m->range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == at);
	reply(m, CUDA_SUCCESS, NULL, 0, fd);
	close(fd);
}

static void query_memory(const struct wire_message *m)
{
	uint64_t room = word_relaxed(&loopback->room);
	uint64_t values[2] = {room - word_relaxed(&loopback->mapped), room};

	reply(m, CUDA_SUCCESS, values, 2, -1);
}

/* 512 MiB is too much; what is less is rounded. */
static void set_limit(const struct wire_message *m)
{
	uint64_t value = m->limit.value + 8;

	word_set(&loopback->limits, word_relaxed(&loopback->limits) + 1);
	if (m->limit.value >= UINT64_C(512) << 20)
		reply(m, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, -1);
	else
		reply(m, CUDA_SUCCESS, &value, 1, -1);
}

/* Memory of a handle is made at the latest when it is mapped. */
static void map_handle(const struct wire_message *m)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .id = m->id};

	map.range = (struct wire_range){.address = m->memory.address, .bytes = m->memory.bytes};
	map_memory(&map);
}

static void reserve_window(const struct wire_message *m)
{
	const struct wire_window *wish = &m->window;
	uint64_t at = word_relaxed(&loopback->window_at);
	uint64_t values[2] = {at, wish->bytes};

	RULE(wish->bytes && wish->bytes % 0x200000 == 0 && wish->free_windows.count == WINDOW_WORDS);
	for (unsigned i = 0; i < WINDOW_WORDS; ++i)
		word_set(&loopback->free_windows[i], wish->free_windows.at[i]);
	if (!at || (wish->address && wish->address != at)) {
		reply(m, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, -1);
		return;
	}
	word_set(&loopback->window_bytes, wish->bytes);
	word_set(&loopback->window_at, at + wish->bytes);
	atomic_fetch_add(&loopback->windows, 1);
	reply(m, CUDA_SUCCESS, values, 2, -1);
}

static void request(const struct wire_message *m)
{
	switch (m->type) {
	case WIRE_RESERVE_WINDOW:
		reserve_window(m);
		return;
	case WIRE_RELEASE_WINDOW:
		RULE(atomic_fetch_sub(&loopback->windows, 1) > 0);
		reply(m, CUDA_SUCCESS, NULL, 0, -1);
		return;
	case WIRE_CREATE_MEMORY:
	case WIRE_RELEASE_MEMORY:
		atomic_fetch_add(&loopback->handles, m->type == WIRE_CREATE_MEMORY ? 1 : -1);
		reply(m, CUDA_SUCCESS, NULL, 0, -1);
		return;
	case WIRE_MAP_HANDLE:
		map_handle(m);
		return;
	case WIRE_MAP_MEMORY:
		map_memory(m);
		return;
	case WIRE_MAP_HOST:
		map_host(m);
		return;
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		unmap(m);
		return;
	case WIRE_QUERY_MEMORY:
		query_memory(m);
		return;
	case WIRE_SET_LIMIT:
		set_limit(m);
		return;
	default:
		reply(m, CUDA_ERROR_NOT_SUPPORTED, NULL, 0, -1);
	}
}

/* The lowest window that the client has free. */
static uint64_t pick_window(const struct wire_hello *hello)
{
	for (uint32_t i = 0; i < WINDOWS; ++i)
		if (hello->free_windows.at[i / 64] >> (i % 64) & 1)
			return WINDOW_BASE + i * WINDOW_BYTES;
	return 0;
}

static void fill_device(struct wire_device *device, int32_t attributes[149])
{
	static const uint8_t uuid[16] = {0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7};
	static const uint64_t limits[3] = {1024, 1 << 20, 8 << 20};

	attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
	attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
	attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
	attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = 0x1b;
	*device = (struct wire_device){
		.name = "Loopback",
		.uuid = {.at = uuid, .count = 16},
		.attributes = {.at = attributes, .count = 149},
		.total_bytes = word_relaxed(&loopback->room),
		.priority_least = 0,
		.priority_greatest = -5,
		.limits = {.at = limits, .count = 3},
		.sm_granule = 8,
		.sm_units = word_relaxed(&loopback->no_units) ? 0 : 15,
	};
}

static void welcome(const struct wire_message *hello)
{
	static struct wire_message m;
	static int32_t attributes[149];
	int client_fd, server_fd, readonly_fd;
	struct wire_shape shape;

	shm_shape_init(&shape, SHM_RING_BYTES, word_relaxed(&loopback->arena_bytes), 16);
	RULE(shm_region_new(&shape, &client_fd, &server_fd) == 0);
	RULE(shm_view_map(&self.view, &shape, client_fd, server_fd, SHM_SIDE_SERVER) == 0);
	RULE(shm_region_readonly(server_fd, &readonly_fd) == 0);
	ring_reader_init(&self.ring, &self.view);
	word_set(&self.view.server->generation, 1);
	word_set(&self.view.server->share, word_relaxed(&loopback->share));
	word_release(&self.view.server->state, SHM_SESSION_RUNNING);
	self.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	self.window = pick_window(&hello->hello);
	m = (struct wire_message){.type = WIRE_WELCOME, .id = hello->id};
	m.welcome = (struct wire_welcome){.major = FRMPS_PROTOCOL_MAJOR,
		.session = 77,
		.window_base = self.window,
		.device_bytes = DEVICE_PART,
		.host_bytes = HOST_PART,
		.shape = shape,
		.driver_version = CUDA_ABI_VERSION,
		.spin_us = 20,
		.memory_limit = word_relaxed(&loopback->room)};
	fill_device(&m.welcome.device, attributes);
	RULE(message_send(self.socket, &m, (int[]){client_fd, readonly_fd, self.doorbell}, 3) == 0);
	close(client_fd);
	close(server_fd);
	close(readonly_fd);
}

static bool wants_description(const struct wire_hello *hello)
{
	return hello->describe > 1 || (hello->describe && word_relaxed(&loopback->devices) > 1);
}

/* Devices differ in the last byte of their UUIDs. */
static void describe(const struct wire_message *hello)
{
	static struct wire_message m;
	static int32_t attributes[149];
	uint32_t digit = atomic_fetch_add(&loopback->descriptions, 1) % word_relaxed(&loopback->devices);
	uint32_t number = word_relaxed(&loopback->numbers) >> 4 * digit & 0xf;
	uint8_t uuid[16];

	m = (struct wire_message){.type = WIRE_DESCRIPTION, .id = hello->id};
	m.description =
		(struct wire_description){.number = number, .count = word_relaxed(&loopback->devices)};
	fill_device(&m.description.device, attributes);
	memcpy(uuid, m.description.device.uuid.at, sizeof(uuid));
	uuid[15] = (uint8_t)number;
	m.description.device.uuid.at = uuid;
	RULE(message_send(self.socket, &m, NULL, 0) == 0);
}

/* Return: false when the client is gone. */
static bool receive(void)
{
	static struct packet packet;
	static struct wire_message m;

	if (packet_receive(self.socket, &packet) != 0)
		return false;
	RULE(wire_decode(packet.bytes, packet.length, &m) == 0);
	if (m.type == WIRE_HELLO) {
		word_set(&loopback->memory_limit, m.hello.memory_limit);
		word_set(&loopback->sm_percent, m.hello.sm_percent);
		word_set(&loopback->priority, m.hello.priority);
		word_set(&loopback->has_partition, !strcmp(m.hello.sm_partition, "p1"));
		atomic_fetch_add(&loopback->greetings, 1);
		if (word_relaxed(&loopback->deaths)) {
			atomic_fetch_sub(&loopback->deaths, 1);
			return false;
		}
		if (word_relaxed(&loopback->mute))
			return true;
		if (wants_description(&m.hello)) {
			describe(&m);
			return false;
		}
		/* Before it can be seen to be given. */
		atomic_fetch_add(&loopback->welcomes, 1);
		welcome(&m);
	} else {
		request(&m);
	}
	packet_close_fds(&packet);
	return true;
}

static void verdicts(void)
{
	struct shm_server_header *server = self.view.server;
	uint64_t fault = word_relaxed(&loopback->fault);
	uint32_t late = atomic_exchange(&loopback->late, 0);

	if (late) {
		word_set(&server->late_error, late);
		word_release(&server->late_errors, word_relaxed(&server->late_errors) + 1);
	}
	if (fault && word_relaxed(&server->state) != SHM_SESSION_FAULTED) {
		word_set(&server->error, (uint32_t)fault);
		strcpy(server->reason, "as the test wanted");
		word_release(&server->state, SHM_SESSION_FAULTED);
		wake_all(&server->wake);
	}
}

/* A promotion as the client sees it: a new generation with its own timeline, which begins with what
 * is known.
 */
static void promote(void)
{
	struct shm_server_header *server = self.view.server;
	uint32_t next = word_relaxed(&server->generation) + 1;

	for (uint32_t i = 0; i < SHM_STREAMS; ++i) {
		word_set(&shm_timeline_at(shm_view_timeline(&self.view, next), i)->done,
			word_relaxed(&timeline(i)->done));
		word_set(&self.view.states[i].untimed, word_relaxed(&timeline(i)->done));
	}
	word_release(&server->generation, next);
	word_release(&server->state, SHM_SESSION_RUNNING);
	wake_all(&server->wake);
}

static void hold_or_go_on(void)
{
	struct shm_server_header *server = self.view.server;
	bool held = word_relaxed(&server->state) == SHM_SESSION_HELD;

	if (word_relaxed(&loopback->held) && !held) {
		word_release(&server->state, SHM_SESSION_HELD);
		wake_all(&server->wake);
	} else if (!word_relaxed(&loopback->held) && held) {
		promote();
	}
}

/* Return: true as long as everything is to stay on the ring */
static bool is_paused(void)
{
	uint32_t pace = LOOPBACK_IS_TO_PAUSE;

	atomic_compare_exchange_strong(&loopback->pace, &pace, LOOPBACK_PAUSED);
	return pace != LOOPBACK_WORKS;
}

static void work(void)
{
	verdicts();
	hold_or_go_on();
	if (is_paused() || word_relaxed(&self.view.server->state) != SHM_SESSION_RUNNING)
		return;
	while (turn())
		continue;
}

static void serve(void)
{
	struct pollfd p[2] = {{.fd = self.socket, .events = POLLIN}, {.fd = -1, .events = POLLIN}};

	for (;;) {
		p[1].fd = self.view.server ? self.doorbell : -1;
		/* The short timeout is for what rings no bell: the test's wishes and words in
		 * memory. */
		if (self.view.server)
			word_set(&self.view.server->asleep, 1);
		word_fence();
		if (self.view.server)
			work();
		poll(p, 2, 1);
		if (p[1].revents & POLLIN)
			doorbell_drain(self.doorbell);
		if (p[0].revents && !receive())
			return;
	}
}

static void be_service(int listener, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	for (;;) {
		self.view = SHM_VIEW_NULL;
		self.socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		serve();
		close(self.socket);
	}
}

void loopback_start(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pid_t parent = getpid();
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	loopback = mmap(NULL, sizeof(*loopback), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	word_set(&loopback->room, UINT64_C(1) << 40);
	word_set(&loopback->arena_bytes, SHM_ARENA_BYTES);
	word_set(&loopback->devices, 1);
	word_set(&loopback->numbers, 0x76543210);
	strcpy(folder, "/tmp/frmps-loopback-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/socket", folder);
	strcpy(address.sun_path, path);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 8) != 0)
		abort();
	setenv("FRMPS_SOCKET", path, 1);
	child = fork();
	if (child == 0)
		be_service(listener, parent);
	close(listener);
}

void loopback_kill(void)
{
	if (child > 0)
		kill(child, SIGKILL);
}

bool loopback_stop(void)
{
	loopback_kill();
	unlink(path);
	rmdir(folder);
	if (word_relaxed(&loopback->broken))
		fprintf(stderr, "loopback.c:%u: rule broken\n", word_relaxed(&loopback->broken));
	return !word_relaxed(&loopback->broken);
}

unsigned int loopback_count(uint16_t op)
{
	uint32_t end = word_acquire(&loopback->count);
	unsigned int n = 0;

	for (uint32_t i = 0; i < end && i < LOOPBACK_NOTES; ++i)
		n += loopback->notes[i].op == op;
	return n;
}

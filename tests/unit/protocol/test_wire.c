// Control packets: every message type there and back with extreme values; then every truncation and
// many seeded corruptions of each, decoded from a buffer of exactly that size and read to the last
// byte, so that the sanitizer build sees any step outside; then packets that are well-formed and
// against our limits.

#include "protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/command.h"
#include "tests/lib/seed.h"
#include "tests/lib/suite.h"

#define CORRUPTIONS 1000

static const uint64_t wide[] = {0, 1, UINT64_MAX, UINT64_C(0x0123456789abcdef), UINT64_C(1) << 63};
static const uint32_t narrow[] = {UINT32_MAX, 0, 7};
static const int32_t corners[] = {INT32_MIN, -1, INT32_MAX};
static const uint64_t map_words[WIRE_TENSOR_MAP_WORDS] = {1, UINT64_MAX, 3};
static const uint32_t recover[] = {0, 1, 2, UINT32_MAX, 3};
static const int32_t attributes[] = {0, INT32_MIN, INT32_MAX, -1, 1024};
static const uint8_t uuid[WIRE_UUID_BYTES] = {0xff, 0, 0xfe, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x80};
static const uint8_t peers[] = {0, 3, 255, 1};
static const char *const names[] = {"", "kernel", "_Z6kernelPfi", "ünï", "a\tb\nc"};
static const struct wire_option options[] = {{UINT32_MAX, 0, UINT64_MAX}, {1, 2, 3}};
static const struct wire_shape shape = {UINT64_MAX, 2, 3, UINT64_MAX - 1, 5, 6, 7, UINT64_C(1) << 40, 9,
	UINT32_MAX, UINT64_MAX - 2, UINT64_MAX - 3};
static uint8_t launch_attributes[3 * sizeof(struct frmps_launch_attribute)];
/* Longer than any text that the house writes. */
static char long_text[20000];

#define ALL(array)                                                                                           \
	{                                                                                                    \
		(array), sizeof(array) / sizeof(*(array))                                                    \
	}

/* Messages about physical memory and addresses. */
static void fill_memory(struct wire_message *m)
{
	switch (m->type) {
	case WIRE_CREATE_MEMORY:
		m->memory = (struct wire_memory){.handle = UINT64_MAX, .bytes = UINT64_MAX - 1, .host = true};
		break;
	case WIRE_RELEASE_MEMORY:
		m->memory = (struct wire_memory){.handle = UINT64_MAX};
		break;
	case WIRE_MAP_HANDLE:
		m->memory = (struct wire_memory){UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2, {0, 0}, false};
		break;
	case WIRE_EXPORT_MEMORY:
		m->memory = (struct wire_memory){.handle = UINT64_MAX, .address = 5};
		break;
	case WIRE_IMPORT_MEMORY:
		m->memory = (struct wire_memory){.handle = 1, .token = {UINT64_MAX, UINT64_MAX - 1}};
		break;
	case WIRE_HANDOVER:
		m->handover = (struct wire_handover){
			UINT32_MAX, 2, UINT32_MAX - 1, 3, {UINT64_MAX, 4}, INT32_MIN, long_text};
		break;
	case WIRE_LEND_MEMORY:
		m->lend = (struct wire_lend){.token = {UINT64_MAX, UINT64_MAX - 1}, .uid = UINT32_MAX};
		break;
	case WIRE_RESERVE_WINDOW:
		m->window = (struct wire_window){UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63, ALL(wide)};
		break;
	case WIRE_RELEASE_WINDOW:
		m->window = (struct wire_window){.address = UINT64_MAX, .bytes = UINT64_MAX - 1};
		break;
	case WIRE_CARRY_MEMORY:
		m->carry = (struct wire_carry){UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2, true};
		break;
	case WIRE_ENCODE_TENSOR_MAP:
		m->tensor_map = (struct wire_tensor_map){1, 2, 3, 4, 5, 6, 7, 8, UINT32_MAX, UINT64_MAX,
			ALL(wide), ALL(wide), ALL(map_words), ALL(narrow), ALL(narrow), ALL(corners),
			ALL(corners)};
		break;
	case WIRE_MAKE_GRAPH:
		m->graph = (struct wire_graph){UINT32_MAX, UINT64_MAX - 1, UINT64_MAX};
		break;
	case WIRE_DROP_GRAPH:
		m->graph = (struct wire_graph){.graph = UINT32_MAX - 1};
		break;
	case WIRE_LINK_ADD:
		m->link = (struct wire_link){
			UINT32_MAX, 1, 2, UINT64_MAX, long_text, ALL(options), ALL(options), UINT64_MAX};
		break;
	case WIRE_LINK_COMPLETE:
		m->link = (struct wire_link){
			.link = 5, .position = UINT32_MAX, .name = "", .options = ALL(options)};
		break;
	case WIRE_LINK_DROP:
		m->link = (struct wire_link){.link = UINT32_MAX, .name = ""};
		break;
	case WIRE_IMPORT_HOST:
		m->import = (struct wire_import){UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2, UINT64_MAX - 3};
		break;
	case WIRE_SET_LIMIT:
		m->limit = (struct wire_limit){UINT32_MAX, UINT64_MAX - 1};
		break;
	case WIRE_MAKE_ARRAY:
		m->array = (struct wire_array){
			UINT32_MAX, 2, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2, 6, 7, UINT32_MAX - 3};
		break;
	case WIRE_BACK_ARRAY:
		m->back_array = (struct wire_back_array){
			UINT32_MAX, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2, UINT64_MAX - 3};
		break;
	case WIRE_DROP_ARRAY:
		m->array = (struct wire_array){.array = UINT32_MAX};
		break;
	case WIRE_MAKE_OBJECT:
		m->object = (struct wire_object){UINT32_MAX, 1, 2, 3, 4, 5, UINT32_MAX - 6, true, true,
			UINT64_MAX, UINT64_MAX - 1, 9, 10, 11, UINT64_MAX - 2, {0}, {0}};
		memset(m->object.texture, 0xa5, sizeof(m->object.texture));
		memset(m->object.view, 0x5a, sizeof(m->object.view));
		break;
	case WIRE_DROP_OBJECT:
		m->object = (struct wire_object){.object = UINT32_MAX - 1};
		break;
	case WIRE_DESCRIPTION:
		m->description =
			(struct wire_description){{long_text, ALL(uuid), ALL(attributes), UINT64_MAX,
							  INT32_MAX, INT32_MIN, ALL(wide), ALL(peers)},
				UINT32_MAX, UINT32_MAX - 1, INT32_MIN, UINT64_MAX};
		break;
	default:
		break;
	}
}

/* A message of the type with no field left at its default. */
static struct wire_message *sample(enum wire_type type)
{
	const struct wire_device device = {long_text, ALL(uuid), ALL(attributes), UINT64_MAX, INT32_MAX,
		INT32_MIN, ALL(wide), ALL(peers)};
	struct wire_message *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->type = type;
	m->id = UINT64_MAX;
	m->session = UINT64_MAX - 1;
	switch (type) {
	case WIRE_HELLO:
		m->hello = (struct wire_hello){1, UINT32_MAX, UINT64_MAX, "program", ALL(wide), 1,
			UINT64_MAX - 2, UINT32_MAX - 1, "/usr/bin/program", UINT64_MAX - 3, 100, 1, "p1", 2};
		break;
	case WIRE_WELCOME:
		m->welcome = (struct wire_welcome){1, 2, 3, 4, UINT64_MAX, 6, 7, 8, shape, INT32_MIN, {{0}},
			WIRE_DEVICES_MAX, 50, UINT64_MAX - 3};
		for (unsigned i = 0; i < WIRE_DEVICES_MAX; ++i) {
			m->welcome.devices[i] = device;
			m->welcome.devices[i].name = names[i % 5];
			m->welcome.devices[i].total_bytes -= i;
		}
		break;
	case WIRE_REFUSE:
		m->refuse = (struct wire_refuse){INT32_MIN, long_text};
		break;
	case WIRE_REPLY:
		m->reply.code = INT32_MAX;
		m->reply.values = (struct wire_u64s)ALL(wide);
		m->reply.names = (struct wire_names)ALL(names);
		m->reply.text = "log\n";
		break;
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		m->range = (struct wire_range){UINT64_MAX, UINT64_C(1) << 47, 0};
		break;
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		m->range = (struct wire_range){UINT64_MAX, UINT64_C(1) << 47, UINT32_MAX};
		break;
	case WIRE_LOAD_MODULE:
		m->load_module = (struct wire_load_module){UINT32_MAX, 1, UINT64_MAX, ALL(options),
			UINT64_MAX, true, UINT64_MAX - 1, UINT64_MAX - 2, UINT64_MAX - 3};
		break;
	case WIRE_UNLOAD_MODULE:
	case WIRE_LIST_FUNCTIONS:
		m->symbol = (struct wire_symbol){UINT32_MAX, 0, "", type == WIRE_UNLOAD_MODULE ? 0 : 7};
		break;
	case WIRE_FIND_FUNCTION:
		m->symbol = (struct wire_symbol){UINT32_MAX, UINT32_MAX - 1, long_text, 0};
		break;
	case WIRE_FIND_GLOBAL:
		m->symbol = (struct wire_symbol){UINT32_MAX, 0, "global", 0};
		break;
	case WIRE_SET_FUNCTION:
		m->set_function = (struct wire_set_function){UINT32_MAX, 1000, INT64_MIN};
		break;
	case WIRE_QUERY_OCCUPANCY:
		m->occupancy = (struct wire_occupancy){
			1, 2, 3, 4, UINT32_MAX, UINT64_MAX, ALL(narrow), ALL(narrow), ALL(launch_attributes)};
		break;
	case WIRE_QUERY_ELAPSED:
		m->elapsed = (struct wire_elapsed){UINT32_MAX, 1, UINT64_MAX, 2, 3, UINT32_MAX};
		break;
	case WIRE_OPEN_SESSION:
		m->open_session = (struct wire_open_session){UINT64_MAX, 2, 3, shape, UINT32_MAX, "program",
			INT32_MAX, UINT64_MAX - 7, UINT32_MAX - 1};
		break;
	case WIRE_CLOSE_SESSION:
	case WIRE_DETACH_SESSION:
		m->close_session.patience_ms = UINT32_MAX;
		break;
	case WIRE_ACTIVATE:
		m->activate = (struct wire_activate){
			UINT32_MAX, ALL(wide), ALL(recover), INT32_MIN, "why", UINT32_MAX};
		break;
	case WIRE_READY:
		m->ready = (struct wire_ready){device, INT32_MIN, true, UINT32_MAX, UINT32_MAX - 1};
		break;
	case WIRE_OFFENCE:
		m->trouble = (struct wire_trouble){.text = "reason"};
		break;
	case WIRE_SUSPECT:
		m->trouble = (struct wire_trouble){.text = long_text};
		break;
	case WIRE_HALT:
		m->halt.fence = true;
		break;
	case WIRE_LOST:
	case WIRE_END_KERNELS:
		m->trouble = (struct wire_trouble){.code = INT32_MAX, .text = long_text};
		break;
	case WIRE_FAULT:
		m->trouble =
			(struct wire_trouble){INT32_MAX, long_text, UINT64_MAX, UINT64_MAX - 1, UINT32_MAX};
		break;
	case WIRE_CREATE_CHUNK:
		m->chunk = (struct wire_chunk){UINT64_MAX, 0};
		break;
	case WIRE_RELEASE_CHUNK:
		m->chunk = (struct wire_chunk){0, UINT64_MAX};
		break;
	case WIRE_OPEN_GUARD:
		m->open_guard = (struct wire_open_guard){UINT32_MAX, 5};
		break;
	case WIRE_GUARD_HIT:
		m->guard_hit = (struct wire_guard_hit){long_text};
		break;
	case WIRE_ADMIN:
		m->admin.command = "status";
		m->admin.arguments = (struct wire_names)ALL(names);
		break;
	case WIRE_ADMIN_REPLY:
		m->admin_reply = (struct wire_admin_reply){INT32_MIN, long_text};
		break;
	default:
		fill_memory(m);
		break;
	}
	return m;
}

/* ---- comparisons ---- */

#define SAME_WORDS(a, b)                                                                                     \
	do {                                                                                                 \
		ck_assert_uint_eq((a).count, (b).count);                                                     \
		ck_assert_int_eq((a).count ? memcmp((a).at, (b).at, (a).count * sizeof(*(a).at)) : 0, 0);    \
		ck_assert_uint_eq((uintptr_t)(b).at % _Alignof(__typeof__(*(b).at)), 0);                     \
	} while (0)

static void same_names(const struct wire_names *a, const struct wire_names *b)
{
	ck_assert_uint_eq(a->count, b->count);
	for (uint32_t i = 0; i < a->count; ++i)
		ck_assert_str_eq(a->at[i], b->at[i]);
}

static void same_device(const struct wire_device *a, const struct wire_device *b)
{
	ck_assert_str_eq(a->name, b->name);
	SAME_WORDS(a->uuid, b->uuid);
	SAME_WORDS(a->attributes, b->attributes);
	ck_assert_uint_eq(a->total_bytes, b->total_bytes);
	ck_assert_int_eq(a->priority_least, b->priority_least);
	ck_assert_int_eq(a->priority_greatest, b->priority_greatest);
	SAME_WORDS(a->limits, b->limits);
	SAME_WORDS(a->peers, b->peers);
}

static void same_shape(const struct wire_shape *a, const struct wire_shape *b)
{
	ck_assert_uint_eq(a->ring_offset, b->ring_offset);
	ck_assert_uint_eq(a->ring_bytes, b->ring_bytes);
	ck_assert_uint_eq(a->arena_offset, b->arena_offset);
	ck_assert_uint_eq(a->arena_bytes, b->arena_bytes);
	ck_assert_uint_eq(a->client_bytes, b->client_bytes);
	ck_assert_uint_eq(a->states_offset, b->states_offset);
	ck_assert_uint_eq(a->timelines_offset, b->timelines_offset);
	ck_assert_uint_eq(a->journal_offset, b->journal_offset);
	ck_assert_uint_eq(a->server_bytes, b->server_bytes);
	ck_assert_uint_eq(a->journal_blocks, b->journal_blocks);
	ck_assert_uint_eq(a->times_offset, b->times_offset);
	ck_assert_uint_eq(a->more_offset, b->more_offset);
}

static void same_hello(const struct wire_hello *a, const struct wire_hello *b)
{
	ck_assert_uint_eq(a->major, b->major);
	ck_assert_uint_eq(a->minor, b->minor);
	ck_assert_uint_eq(a->features, b->features);
	ck_assert_str_eq(a->program, b->program);
	SAME_WORDS(a->free_windows, b->free_windows);
	ck_assert_uint_eq(a->window_base, b->window_base);
	ck_assert_uint_eq(a->window_bytes, b->window_bytes);
	ck_assert_uint_eq(a->recovery, b->recovery);
	ck_assert_str_eq(a->identity, b->identity);
	ck_assert_uint_eq(a->memory_limit, b->memory_limit);
	ck_assert_uint_eq(a->sm_percent, b->sm_percent);
	ck_assert_uint_eq(a->priority, b->priority);
	ck_assert_str_eq(a->sm_partition, b->sm_partition);
	ck_assert_uint_eq(a->describe, b->describe);
}

static void same_welcome(const struct wire_welcome *a, const struct wire_welcome *b)
{
	ck_assert_uint_eq(a->major, b->major);
	ck_assert_uint_eq(a->minor, b->minor);
	ck_assert_uint_eq(a->features, b->features);
	ck_assert_uint_eq(a->session, b->session);
	ck_assert_uint_eq(a->token, b->token);
	ck_assert_uint_eq(a->window_base, b->window_base);
	ck_assert_uint_eq(a->device_bytes, b->device_bytes);
	ck_assert_uint_eq(a->host_bytes, b->host_bytes);
	same_shape(&a->shape, &b->shape);
	ck_assert_int_eq(a->driver_version, b->driver_version);
	ck_assert_uint_eq(a->device_count, b->device_count);
	for (uint32_t i = 0; i < a->device_count; ++i)
		same_device(&a->devices[i], &b->devices[i]);
	ck_assert_uint_eq(a->spin_us, b->spin_us);
	ck_assert_uint_eq(a->memory_limit, b->memory_limit);
}

static void same_occupancy(const struct wire_occupancy *a, const struct wire_occupancy *b)
{
	ck_assert_uint_eq(a->function, b->function);
	ck_assert_uint_eq(a->query, b->query);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->blocks, b->blocks);
	ck_assert_uint_eq(a->block_size, b->block_size);
	ck_assert_uint_eq(a->shared_bytes, b->shared_bytes);
	SAME_WORDS(a->grid, b->grid);
	SAME_WORDS(a->block, b->block);
	SAME_WORDS(a->attributes, b->attributes);
}

static void same_open_session(const struct wire_open_session *a, const struct wire_open_session *b)
{
	ck_assert_uint_eq(a->window_base, b->window_base);
	ck_assert_uint_eq(a->device_bytes, b->device_bytes);
	ck_assert_uint_eq(a->host_bytes, b->host_bytes);
	same_shape(&a->shape, &b->shape);
	ck_assert_uint_eq(a->recovery, b->recovery);
	ck_assert_str_eq(a->program, b->program);
	ck_assert_int_eq(a->pid, b->pid);
	ck_assert_uint_eq(a->text, b->text);
	ck_assert_uint_eq(a->user, b->user);
}

static void same_activate(const struct wire_activate *a, const struct wire_activate *b)
{
	ck_assert_uint_eq(a->canary_ms, b->canary_ms);
	ck_assert_uint_eq(a->generation, b->generation);
	SAME_WORDS(a->sessions, b->sessions);
	SAME_WORDS(a->recover, b->recover);
	ck_assert_int_eq(a->code, b->code);
	ck_assert_str_eq(a->reason, b->reason);
}

static void same_load_module(const struct wire_load_module *a, const struct wire_load_module *b)
{
	ck_assert_uint_eq(a->module, b->module);
	ck_assert_uint_eq(a->kind, b->kind);
	ck_assert_uint_eq(a->bytes, b->bytes);
	ck_assert_uint_eq(a->variables, b->variables);
	ck_assert_uint_eq(a->file, b->file);
	ck_assert_uint_eq(a->code, b->code);
	SAME_WORDS(a->options, b->options);
}

static void same_link(const struct wire_link *a, const struct wire_link *b)
{
	ck_assert_uint_eq(a->link, b->link);
	ck_assert_uint_eq(a->position, b->position);
	ck_assert_uint_eq(a->type, b->type);
	ck_assert_uint_eq(a->bytes, b->bytes);
	ck_assert_uint_eq(a->file, b->file);
	ck_assert_str_eq(a->name, b->name);
	SAME_WORDS(a->options, b->options);
	SAME_WORDS(a->own, b->own);
}

/* A code and a text. */
static void same_text(int32_t code_a, const char *a, int32_t code_b, const char *b)
{
	ck_assert_int_eq(code_a, code_b);
	ck_assert_str_eq(a, b);
}

static void same_reply(const struct wire_reply *a, const struct wire_reply *b)
{
	same_text(a->code, a->text, b->code, b->text);
	SAME_WORDS(a->values, b->values);
	same_names(&a->names, &b->names);
}

static void same_symbol(const struct wire_symbol *a, const struct wire_symbol *b)
{
	ck_assert_uint_eq(a->module, b->module);
	ck_assert_uint_eq(a->function, b->function);
	ck_assert_str_eq(a->name, b->name);
	ck_assert_uint_eq(a->from, b->from);
}

static void same_tensor_map(const struct wire_tensor_map *a, const struct wire_tensor_map *b)
{
	/* Nine numbers in a row, and padding behind them. */
	ck_assert_mem_eq(&a->kind, &b->kind, offsetof(struct wire_tensor_map, fill) + sizeof(a->fill));
	ck_assert_uint_eq(a->address, b->address);
	SAME_WORDS(a->dims, b->dims);
	SAME_WORDS(a->strides, b->strides);
	SAME_WORDS(a->map, b->map);
	SAME_WORDS(a->box, b->box);
	SAME_WORDS(a->element_strides, b->element_strides);
	SAME_WORDS(a->lower, b->lower);
	SAME_WORDS(a->upper, b->upper);
}

/* What a program has besides memory and code. */
static void same_objects(const struct wire_message *a, const struct wire_message *b)
{
	switch (a->type) {
	case WIRE_MAKE_GRAPH:
	case WIRE_DROP_GRAPH:
		ck_assert_uint_eq(a->graph.graph, b->graph.graph);
		ck_assert_uint_eq(a->graph.bytes, b->graph.bytes);
		ck_assert_uint_eq(a->graph.file, b->graph.file);
		return;
	case WIRE_LINK_ADD:
	case WIRE_LINK_COMPLETE:
	case WIRE_LINK_DROP:
		return same_link(&a->link, &b->link);
	case WIRE_IMPORT_HOST:
		ck_assert_mem_eq(&a->import, &b->import, sizeof(a->import));
		return;
	case WIRE_SET_LIMIT:
		ck_assert_uint_eq(a->limit.limit, b->limit.limit);
		ck_assert_uint_eq(a->limit.value, b->limit.value);
		return;
	case WIRE_MAKE_ARRAY:
	case WIRE_DROP_ARRAY:
		ck_assert_mem_eq(&a->array, &b->array, sizeof(a->array));
		return;
	case WIRE_BACK_ARRAY:
		ck_assert_mem_eq(&a->back_array, &b->back_array, sizeof(a->back_array));
		return;
	case WIRE_MAKE_OBJECT:
	case WIRE_DROP_OBJECT:
		ck_assert_mem_eq(&a->object, &b->object, sizeof(a->object));
		return;
	case WIRE_HANDOVER:
		ck_assert_uint_eq(a->handover.step, b->handover.step);
		ck_assert_uint_eq(a->handover.device, b->handover.device);
		ck_assert_uint_eq(a->handover.transfer, b->handover.transfer);
		ck_assert_uint_eq(a->handover.files, b->handover.files);
		ck_assert_mem_eq(a->handover.key, b->handover.key, sizeof(a->handover.key));
		return same_text(a->handover.code, a->handover.text, b->handover.code, b->handover.text);
	case WIRE_DESCRIPTION:
		ck_assert_uint_eq(a->description.number, b->description.number);
		ck_assert_uint_eq(a->description.count, b->description.count);
		ck_assert_int_eq(a->description.driver_version, b->description.driver_version);
		ck_assert_uint_eq(a->description.features, b->description.features);
		return same_device(&a->description.device, &b->description.device);
	default:
		ck_abort_msg("type %d is not compared", a->type);
	}
}

static void same(const struct wire_message *a, const struct wire_message *b)
{
	ck_assert_int_eq(a->type, b->type);
	ck_assert_uint_eq(a->id, b->id);
	ck_assert_uint_eq(a->session, b->session);
	switch (a->type) {
	case WIRE_HELLO:
		return same_hello(&a->hello, &b->hello);
	case WIRE_WELCOME:
		return same_welcome(&a->welcome, &b->welcome);
	case WIRE_REFUSE:
		return same_text(a->refuse.code, a->refuse.text, b->refuse.code, b->refuse.text);
	case WIRE_REPLY:
		return same_reply(&a->reply, &b->reply);
	case WIRE_MAP_MEMORY:
	case WIRE_UNMAP_MEMORY:
	case WIRE_MAP_HOST:
	case WIRE_UNMAP_HOST:
		ck_assert_uint_eq(a->range.address, b->range.address);
		ck_assert_uint_eq(a->range.bytes, b->range.bytes);
		ck_assert_uint_eq(a->range.flags, b->range.flags);
		return;
	case WIRE_LOAD_MODULE:
		return same_load_module(&a->load_module, &b->load_module);
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
		return same_symbol(&a->symbol, &b->symbol);
	case WIRE_SET_FUNCTION:
		ck_assert_uint_eq(a->set_function.function, b->set_function.function);
		ck_assert_uint_eq(a->set_function.attribute, b->set_function.attribute);
		ck_assert_int_eq(a->set_function.value, b->set_function.value);
		return;
	case WIRE_QUERY_OCCUPANCY:
		return same_occupancy(&a->occupancy, &b->occupancy);
	case WIRE_QUERY_ELAPSED:
		ck_assert_uint_eq(a->elapsed.start_event, b->elapsed.start_event);
		ck_assert_uint_eq(a->elapsed.end_event, b->elapsed.end_event);
		ck_assert_uint_eq(a->elapsed.start_seq, b->elapsed.start_seq);
		ck_assert_uint_eq(a->elapsed.end_seq, b->elapsed.end_seq);
		ck_assert_uint_eq(a->elapsed.start_stream, b->elapsed.start_stream);
		ck_assert_uint_eq(a->elapsed.end_stream, b->elapsed.end_stream);
		return;
	case WIRE_OPEN_SESSION:
		return same_open_session(&a->open_session, &b->open_session);
	case WIRE_CLOSE_SESSION:
	case WIRE_DETACH_SESSION:
		ck_assert_uint_eq(a->close_session.patience_ms, b->close_session.patience_ms);
		return;
	case WIRE_ACTIVATE:
		return same_activate(&a->activate, &b->activate);
	case WIRE_READY:
		ck_assert_int_eq(a->ready.driver_version, b->ready.driver_version);
		ck_assert(a->ready.contains == b->ready.contains);
		ck_assert_uint_eq(a->ready.sm_granule, b->ready.sm_granule);
		ck_assert_uint_eq(a->ready.sm_units, b->ready.sm_units);
		return same_device(&a->ready.device, &b->ready.device);
	case WIRE_OFFENCE:
	case WIRE_LOST:
	case WIRE_SUSPECT:
	case WIRE_END_KERNELS:
	case WIRE_FAULT:
		ck_assert_uint_eq(a->trouble.instruction, b->trouble.instruction);
		ck_assert_uint_eq(a->trouble.took, b->trouble.took);
		ck_assert_uint_eq(a->trouble.number, b->trouble.number);
		return same_text(a->trouble.code, a->trouble.text, b->trouble.code, b->trouble.text);
	case WIRE_CREATE_CHUNK:
	case WIRE_RELEASE_CHUNK:
		ck_assert_uint_eq(a->chunk.bytes, b->chunk.bytes);
		ck_assert_uint_eq(a->chunk.handle, b->chunk.handle);
		return;
	case WIRE_OPEN_GUARD:
		ck_assert_uint_eq(a->open_guard.policy, b->open_guard.policy);
		ck_assert_uint_eq(a->open_guard.interval_ms, b->open_guard.interval_ms);
		return;
	case WIRE_GUARD_HIT:
		ck_assert_str_eq(a->guard_hit.text, b->guard_hit.text);
		return;
	case WIRE_CREATE_MEMORY:
	case WIRE_RELEASE_MEMORY:
	case WIRE_MAP_HANDLE:
	case WIRE_EXPORT_MEMORY:
	case WIRE_IMPORT_MEMORY:
		ck_assert_mem_eq(&a->memory, &b->memory, sizeof(a->memory));
		return;
	case WIRE_LEND_MEMORY:
		ck_assert_mem_eq(a->lend.token, b->lend.token, sizeof(a->lend.token));
		ck_assert_uint_eq(a->lend.uid, b->lend.uid);
		return;
	case WIRE_RESERVE_WINDOW:
	case WIRE_RELEASE_WINDOW:
		ck_assert_uint_eq(a->window.alignment, b->window.alignment);
		ck_assert_uint_eq(a->window.address, b->window.address);
		ck_assert_uint_eq(a->window.bytes, b->window.bytes);
		SAME_WORDS(a->window.free_windows, b->window.free_windows);
		return;
	case WIRE_CARRY_MEMORY:
		ck_assert(a->carry.address == b->carry.address && a->carry.bytes == b->carry.bytes);
		ck_assert(a->carry.offset == b->carry.offset && a->carry.into == b->carry.into);
		return;
	case WIRE_ENCODE_TENSOR_MAP:
		return same_tensor_map(&a->tensor_map, &b->tensor_map);
	case WIRE_ADMIN:
		ck_assert_str_eq(a->admin.command, b->admin.command);
		return same_names(&a->admin.arguments, &b->admin.arguments);
	case WIRE_ADMIN_REPLY:
		return same_text(
			a->admin_reply.code, a->admin_reply.json, b->admin_reply.code, b->admin_reply.json);
	case WIRE_QUERY_MEMORY:
	case WIRE_MAKE_FILE:
	case WIRE_SHUTDOWN:
	case WIRE_PING:
	case WIRE_WANTED:
		return;
	case WIRE_HALT:
		ck_assert(a->halt.fence == b->halt.fence);
		return;
	default:
		same_objects(a, b);
	}
}

/* ---- reading everything that a message points to ---- */

/* A copy reads all of it, and sanitizers look at it as a whole. */
static void touch(const void *at, size_t bytes)
{
	static uint8_t copy[WIRE_PACKET_MAX];

	ck_assert_uint_le(bytes, sizeof(copy));
	if (bytes)
		memcpy(copy, at, bytes);
	__asm__ volatile("" : : "r"(copy) : "memory");
}

#define TOUCH_ALL(vector) touch((vector).at, (vector).count * sizeof(*(vector).at))

static void touch_text(const char *s)
{
	touch(s, strlen(s) + 1);
}

static void touch_names(const struct wire_names *n)
{
	for (uint32_t i = 0; i < n->count; ++i)
		touch_text(n->at[i]);
}

static void touch_device(const struct wire_device *d)
{
	touch_text(d->name);
	TOUCH_ALL(d->uuid);
	TOUCH_ALL(d->attributes);
	TOUCH_ALL(d->limits);
	TOUCH_ALL(d->peers);
}

static void touch_message(const struct wire_message *m)
{
	switch (m->type) {
	case WIRE_HELLO:
		touch_text(m->hello.program);
		TOUCH_ALL(m->hello.free_windows);
		break;
	case WIRE_WELCOME:
		ck_assert_uint_le(m->welcome.device_count, WIRE_DEVICES_MAX);
		for (uint32_t i = 0; i < m->welcome.device_count; ++i)
			touch_device(&m->welcome.devices[i]);
		break;
	case WIRE_REPLY:
		ck_assert_uint_le(m->reply.names.count, WIRE_NAMES_MAX);
		TOUCH_ALL(m->reply.values);
		touch_names(&m->reply.names);
		touch_text(m->reply.text);
		break;
	case WIRE_LOAD_MODULE:
		ck_assert_uint_le(m->load_module.options.count, WIRE_OPTIONS_MAX);
		TOUCH_ALL(m->load_module.options);
		break;
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
		touch_text(m->symbol.name);
		break;
	case WIRE_QUERY_OCCUPANCY:
		ck_assert(m->occupancy.grid.count == 0 || m->occupancy.grid.count == 3);
		TOUCH_ALL(m->occupancy.grid);
		TOUCH_ALL(m->occupancy.block);
		TOUCH_ALL(m->occupancy.attributes);
		break;
	case WIRE_OPEN_SESSION:
		touch_text(m->open_session.program);
		break;
	case WIRE_ACTIVATE:
		ck_assert_uint_eq(m->activate.sessions.count, m->activate.recover.count);
		TOUCH_ALL(m->activate.sessions);
		TOUCH_ALL(m->activate.recover);
		touch_text(m->activate.reason);
		break;
	case WIRE_READY:
		touch_device(&m->ready.device);
		break;
	case WIRE_DESCRIPTION:
		touch_device(&m->description.device);
		break;
	case WIRE_HANDOVER:
		touch_text(m->handover.text);
		break;
	case WIRE_REFUSE:
		touch_text(m->refuse.text);
		break;
	case WIRE_OFFENCE:
	case WIRE_LOST:
	case WIRE_SUSPECT:
	case WIRE_END_KERNELS:
	case WIRE_FAULT:
		touch_text(m->trouble.text);
		break;
	case WIRE_GUARD_HIT:
		touch_text(m->guard_hit.text);
		break;
	case WIRE_RESERVE_WINDOW:
	case WIRE_RELEASE_WINDOW:
		TOUCH_ALL(m->window.free_windows);
		break;
	case WIRE_ENCODE_TENSOR_MAP:
		TOUCH_ALL(m->tensor_map.dims);
		TOUCH_ALL(m->tensor_map.strides);
		TOUCH_ALL(m->tensor_map.map);
		TOUCH_ALL(m->tensor_map.box);
		TOUCH_ALL(m->tensor_map.element_strides);
		TOUCH_ALL(m->tensor_map.lower);
		TOUCH_ALL(m->tensor_map.upper);
		break;
	case WIRE_ADMIN:
		ck_assert_uint_le(m->admin.arguments.count, WIRE_ARGUMENTS_MAX);
		touch_text(m->admin.command);
		touch_names(&m->admin.arguments);
		break;
	case WIRE_ADMIN_REPLY:
		touch_text(m->admin_reply.json);
		break;
	default:
		break;
	}
}

/* ---- fixture ---- */

static uint8_t *packet;
static struct wire_message *decoded;

static void prepare(void)
{
	packet = malloc(WIRE_PACKET_MAX);
	decoded = malloc(sizeof(*decoded));
	memset(long_text, 'x', sizeof(long_text) - 1);
	for (size_t i = 0; i < sizeof(launch_attributes); ++i)
		launch_attributes[i] = (uint8_t)(i * 7);
}

static void dispose(void)
{
	free(packet);
	free(decoded);
}

/* Decodes from a buffer of exactly this size. Return: as wire_decode(). */
static int decode_exactly(const uint8_t *bytes, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);
	struct wire_message *m = decoded;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, length);
	int r = wire_decode(copy, length, m);
	if (r) {
		/* What libcheck counts of a check that holds costs more than the check. */
		if (r != WIRE_E_INVALID || m->type != WIRE_NONE)
			ck_abort_msg("%d, a message of type %d", r, (int)m->type);
	} else {
		ck_assert_int_gt(m->type, WIRE_NONE);
		ck_assert_int_lt(m->type, WIRE_TYPES);
		touch_message(m);
	}
	free(copy);
	return r;
}

static size_t encode(const struct wire_message *m)
{
	size_t length = 0;

	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);
	ck_assert_uint_gt(length, 0);
	ck_assert_uint_le(length, WIRE_PACKET_MAX);
	return length;
}

static size_t encode_sample(enum wire_type type)
{
	struct wire_message *m = sample(type);
	size_t length = encode(m);

	free(m);
	return length;
}

/* ---- tests ---- */

TEST_LOOP(there_and_back, there_and_back, 1, WIRE_TYPES)
{
	struct wire_message *m = sample((enum wire_type)_i);
	size_t length = encode(m);

	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	same(m, decoded);
	touch_message(decoded);
	free(m);
}

/* All fields zero, all pointers NULL. */
TEST_LOOP(there_and_back, empty_there_and_back, 1, WIRE_TYPES)
{
	struct wire_message *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->type = (enum wire_type)_i;
	size_t length = encode(m);
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_int_eq(decoded->type, _i);
	ck_assert_uint_eq(decoded->id, 0);
	touch_message(decoded);
	if (_i == WIRE_REPLY)
		ck_assert(decoded->reply.values.count == 0 && decoded->reply.names.count == 0);
	free(m);
}

TEST_LOOP(hostile_packets, every_truncation, 1, WIRE_TYPES)
{
	size_t length = encode_sample((enum wire_type)_i);
	/* Byte by byte at both ends, in steps through the text in the middle. */
	for (size_t n = 0, step; n < length; n += step) {
		decode_exactly(packet, n);
		step = n > 4096 && n + 4096 < length ? 61 : 1;
	}
	ck_assert_int_eq(decode_exactly(packet, 0), WIRE_E_INVALID);
	ck_assert_int_eq(decode_exactly(packet, 7), WIRE_E_INVALID);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
}

/* xorshift: the same on every machine. */
static uint32_t random_word(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* The bytes that matter are near both ends; a text of 20 000 bytes between them would swallow most
 * corruptions. */
static size_t random_place(uint32_t *state, size_t length)
{
	uint32_t word = random_word(state);

	if (length <= 4096 || word % 8 == 0)
		return word / 8 % length;
	return word % 8 < 5 ? word / 8 % 1024 : length - 1 - word / 8 % 1024;
}

START_TEST(corruptions)
{
	size_t length = encode_sample((enum wire_type)_i);
	uint32_t state = seed_of(0x9e3779b9u + (uint32_t)_i);
	unsigned refused = 0;

	for (int n = 0; n < CORRUPTIONS; ++n) {
		size_t at = random_place(&state, length);
		uint8_t was = packet[at];
		packet[at] = (uint8_t)random_word(&state);
		refused += decode_exactly(packet, length) != 0;
		packet[at] = was;
	}
	/* The test is worth nothing if corruptions did not reach the structure. */
	ck_assert_uint_gt(refused, 10);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
}
END_TEST

TEST(hostile_packets, noise)
{
	uint32_t state = seed_of(12345);

	for (int n = 0; n < CORRUPTIONS; ++n) {
		size_t length = random_word(&state) % 512;
		for (size_t i = 0; i < length; ++i)
			packet[i] = (uint8_t)random_word(&state);
		if (length >= 8)
			memcpy(packet + 4, "FRMC", 4);
		if (length >= 8 && n % 2)
			memset(packet + 1, 0, 3);
		decode_exactly(packet, length);
	}
}

/* A buffer of any size below the packet's is refused and not written to. */
TEST_LOOP(limits, small_buffers, 1, WIRE_TYPES)
{
	struct wire_message *m = sample((enum wire_type)_i);
	size_t length = encode(m), ret = 99;
	size_t step = length / 50 + 1;

	memset(packet, 0xa5, WIRE_PACKET_MAX);
	for (size_t size = 0; size < length; size += step)
		ck_assert_int_eq(wire_encode(m, packet, size, &ret), WIRE_E_SPACE);
	ck_assert_int_eq(wire_encode(m, packet, length - 1, &ret), WIRE_E_SPACE);
	ck_assert_uint_eq(ret, 99);
	for (size_t i = 0; i < WIRE_PACKET_MAX; ++i)
		if (packet[i] != 0xa5)
			ck_abort_msg("byte %zu was written", i);
	ck_assert_int_eq(wire_encode(m, packet, length, &ret), 0);
	ck_assert_uint_eq(ret, length);
	ck_assert_uint_eq(packet[length], 0xa5);
	free(m);
}

TEST(hostile_packets, foreign_packets)
{
	static const char *const identifiers[] = {"FRMP", "frmc", "\0\0\0\0", "FRMD"};
	size_t length = encode_sample(WIRE_HELLO);

	for (size_t i = 0; i < sizeof(identifiers) / sizeof(*identifiers); ++i) {
		memcpy(packet + 4, identifiers[i], 4);
		ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	}
	memcpy(packet + 4, "FRMC", 4);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
}

TEST(hostile_packets, unaligned_packets)
{
	size_t length = encode_sample(WIRE_PING);

	memmove(packet + 4, packet, length);
	ck_assert_int_eq(wire_decode(packet + 4, length, decoded), WIRE_E_INVALID);
	memmove(packet + 8, packet + 4, length);
	ck_assert_int_eq(wire_decode(packet + 8, length, decoded), 0);
}

TEST(hostile_packets, long_packets)
{
	size_t length = encode_sample(WIRE_PING);
	uint8_t *longer = calloc(1, WIRE_PACKET_MAX + 8);

	ck_assert_ptr_nonnull(longer);
	memcpy(longer, packet, length);
	ck_assert_int_eq(wire_decode(longer, WIRE_PACKET_MAX, decoded), 0);
	ck_assert_int_eq(wire_decode(longer, WIRE_PACKET_MAX + 1, decoded), WIRE_E_INVALID);
	free(longer);
}

/* Encoding what does not fit a packet at all. */
TEST(limits, too_large)
{
	struct wire_message *m = calloc(1, sizeof(*m));
	char *text = calloc(1, 2 * WIRE_PACKET_MAX);
	const char *many[WIRE_NAMES_MAX];
	uint64_t *values = calloc(WIRE_PACKET_MAX, sizeof(*values));
	size_t length = 0;

	ck_assert_ptr_nonnull(m);
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(values);
	m->type = WIRE_REPLY;
	memset(text, 'y', 2 * WIRE_PACKET_MAX - 1);
	m->reply.text = text;
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	text[WIRE_PACKET_MAX - 1] = '\0';
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	text[65000] = '\0';
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);

	/* As many names as a Reply may have: short ones fit, long ones do not. */
	m->reply.text = NULL;
	text[100] = '\0';
	for (unsigned i = 0; i < WIRE_NAMES_MAX; ++i)
		many[i] = text;
	m->reply.names = (struct wire_names)ALL(many);
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_uint_eq(decoded->reply.names.count, WIRE_NAMES_MAX);
	ck_assert_str_eq(decoded->reply.names.at[WIRE_NAMES_MAX - 1], text);
	text[100] = 'y';
	text[200] = '\0';
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);

	m->reply.names.count = 0;
	m->reply.values = (struct wire_u64s){values, 8000};
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);
	m->reply.values.count = WIRE_PACKET_MAX / 8;
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	m->reply.values.count = UINT32_MAX;
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	ck_assert_int_eq(wire_encode(m, packet, SIZE_MAX, &length), WIRE_E_SPACE);
	free(values);
	free(text);
	free(m);
}

/* The largest packets that can be: everything below a limit and just at the packet's end, in steps
 * of one byte. */
TEST(limits, just_fits)
{
	struct wire_message *m = calloc(1, sizeof(*m));
	char *text = calloc(1, WIRE_PACKET_MAX);
	const char *many[WIRE_NAMES_MAX];
	size_t length = 0;
	int r = 0, fits = 0;

	ck_assert_ptr_nonnull(m);
	ck_assert_ptr_nonnull(text);
	m->type = WIRE_REPLY;
	for (unsigned i = 0; i < WIRE_NAMES_MAX; ++i)
		many[i] = i % 2 ? "" : NULL;
	m->reply.names = (struct wire_names)ALL(many);
	m->reply.values = (struct wire_u64s)ALL(wide);
	m->reply.text = text;
	memset(text, 'z', WIRE_PACKET_MAX - 1);
	for (size_t n = WIRE_PACKET_MAX - 6400; n < WIRE_PACKET_MAX - 6000; ++n) {
		text[n] = '\0';
		r = wire_encode(m, packet, WIRE_PACKET_MAX, &length);
		fits += r == 0;
		ck_assert(r == 0 || r == WIRE_E_SPACE);
		ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
		text[n] = 'z';
	}
	ck_assert_int_eq(r, WIRE_E_SPACE);
	ck_assert_int_gt(fits, 0);
	free(text);
	free(m);
}

static void refuse(const struct wire_message *m)
{
	size_t length;

	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_INVALID);
}

TEST(limits, limits_when_encoding)
{
	static const char *many[WIRE_NAMES_MAX + 1];
	static uint64_t words[WIRE_OPTIONS_MAX * 16];
	struct wire_message *m = sample(WIRE_WELCOME);

	m->welcome.devices[3].uuid.count = 15;
	refuse(m);
	m->welcome.devices[3].uuid.count = 0;
	refuse(m);
	m->welcome.devices[3].uuid.count = 16;
	m->welcome.devices[3].limits = (struct wire_u64s){words, WIRE_DEVICE_LIMITS_MAX + 1};
	refuse(m);
	m->welcome.device_count = 3;
	encode(m);
	m->welcome.device_count = WIRE_DEVICES_MAX + 1;
	refuse(m);
	free(m);

	m = sample(WIRE_REPLY);
	m->reply.names = (struct wire_names)ALL(many);
	refuse(m);
	m->reply.names = (struct wire_names){NULL, 1};
	refuse(m);
	m->reply.names.count = 0;
	m->reply.values = (struct wire_u64s){NULL, 1};
	refuse(m);
	free(m);

	m = sample(WIRE_ADMIN);
	m->admin.arguments = (struct wire_names){many, WIRE_ARGUMENTS_MAX};
	encode(m);
	m->admin.arguments = (struct wire_names){many, WIRE_ARGUMENTS_MAX + 1};
	refuse(m);
	free(m);

	m = sample(WIRE_HELLO);
	m->hello.free_windows = (struct wire_u64s){words, WIRE_WINDOW_WORDS_MAX + 1};
	refuse(m);
	free(m);

	m = sample(WIRE_LOAD_MODULE);
	m->load_module.options = (struct wire_options){(struct wire_option *)words, WIRE_OPTIONS_MAX};
	encode(m);
	m->load_module.options.count++;
	refuse(m);
	m->load_module.options = (struct wire_options){NULL, 1};
	refuse(m);
	free(m);
}

TEST(limits, shapes_when_encoding)
{
	struct wire_message *m = sample(WIRE_QUERY_OCCUPANCY);

	m->occupancy.grid.count = 2;
	refuse(m);
	m->occupancy.grid.count = 3;
	m->occupancy.attributes.count -= 1;
	refuse(m);
	free(m);

	m = sample(WIRE_ACTIVATE);
	m->activate.recover.count--;
	refuse(m);
	free(m);

	m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	refuse(m); /* WIRE_NONE */
	m->type = WIRE_TYPES;
	refuse(m);
	free(m);
}

/* Finds `bytes` at a multiple of 4 in the packet; exactly one place. */
static uint8_t *find(size_t length, const void *bytes, size_t count)
{
	uint8_t *found = NULL;

	for (size_t at = 0; at + count <= length; at += 4)
		if (!memcmp(packet + at, bytes, count)) {
			ck_assert_ptr_null(found);
			found = packet + at;
		}
	ck_assert_ptr_nonnull(found);
	return found;
}

static void put_word(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint32_t get_word(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Packets that the verifier finds well-formed but that break our limits, made by changing a
 * vector's length.
 */
TEST(limits, limits_when_decoding)
{
	uint64_t words[WIRE_WINDOW_WORDS_MAX];
	struct wire_message *m = sample(WIRE_HELLO);

	memset(words, 0x5a, sizeof(words));
	m->hello.program = "a program with a name of some length";
	m->hello.free_windows = (struct wire_u64s)ALL(words);
	size_t length = encode(m);
	uint8_t *at = find(length, words, sizeof(words));
	ck_assert_uint_eq(get_word(at - 4), WIRE_WINDOW_WORDS_MAX);
	put_word(at - 4, WIRE_WINDOW_WORDS_MAX + 1);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	put_word(at - 4, WIRE_WINDOW_WORDS_MAX - 1);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
	free(m);

	length = encode_sample(WIRE_READY);
	at = find(length, uuid, sizeof(uuid));
	for (uint32_t count = 0; count < 20; ++count) {
		put_word(at - 4, count);
		ck_assert_int_eq(decode_exactly(packet, length), count == 16 ? 0 : WIRE_E_INVALID);
	}

	length = encode_sample(WIRE_ACTIVATE);
	at = find(length, recover, sizeof(recover));
	put_word(at - 4, 4);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);

	length = encode_sample(WIRE_QUERY_OCCUPANCY);
	at = find(length, launch_attributes, sizeof(launch_attributes));
	put_word(at - 4, sizeof(launch_attributes) - 1);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
}

/* Numbers of 8 bytes must lie at multiples of 8: the offset of a vector is changed so that it
 * starts 4 bytes later, where a length of 1 and enough bytes follow. */
TEST(hostile_packets, misaligned_numbers)
{
	const uint64_t words[] = {UINT64_C(0x1234567800000001), UINT64_C(0x7777777777777777)};
	struct wire_message *m = sample(WIRE_HELLO);
	bool changed = false;

	m->hello.free_windows = (struct wire_u64s)ALL(words);
	size_t length = encode(m);
	size_t vector = (size_t)(find(length, words, sizeof(words)) - packet) - 4;
	for (size_t at = 0; at < vector; at += 4)
		if (at + get_word(packet + at) == vector) {
			put_word(packet + at, get_word(packet + at) + 4);
			changed = true;
			break;
		}
	ck_assert(changed);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	free(m);
}

TEST(there_and_back, keeper_has_no_device)
{
	struct wire_message *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->type = WIRE_READY;
	m->ready.driver_version = 13000;
	size_t length = encode(m);
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_int_eq(decoded->ready.driver_version, 13000);
	ck_assert_uint_eq(decoded->ready.device.uuid.count, 0);
	ck_assert_str_eq(decoded->ready.device.name, "");
	free(m);
}

TEST(there_and_back, type_names)
{
	ck_assert_str_eq(wire_type_name(WIRE_HELLO), "Hello");
	ck_assert_str_eq(wire_type_name(WIRE_ADMIN_REPLY), "AdminReply");
	ck_assert_str_eq(wire_type_name(WIRE_NONE), "unknown");
	ck_assert_str_eq(wire_type_name(WIRE_TYPES), "unknown");
	ck_assert_str_eq(wire_type_name((enum wire_type)12345), "unknown");
	for (int type = 1; type < WIRE_TYPES; ++type)
		ck_assert_str_ne(wire_type_name((enum wire_type)type), "unknown");
}

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *good = suite_case(suite, "there and back");
	TCase *hostile = suite_case(suite, "hostile packets");
	TCase *limits = suite_case(suite, "limits");

	tcase_add_checked_fixture(good, prepare, dispose);
	suite_add(good, "there_and_back");

	tcase_add_checked_fixture(hostile, prepare, dispose);
	suite_add(hostile, "hostile_packets");
	tcase_add_loop_test(hostile, corruptions, 1, WIRE_TYPES);

	tcase_add_checked_fixture(limits, prepare, dispose);
	suite_add(limits, "limits");
	return suite_run(suite);
}

// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The holdings. See holdings.h. A list, searched from its end: requests are rare and look for what is young.

#include "server/session/holdings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/window.h"

void holdings_init(struct holdings *holdings)
{
	memset(holdings, 0, sizeof(*holdings));
	TAILQ_INIT(&holdings->entries);
}

static struct holding *entry_free(struct holdings *holdings, struct holding *entry)
{
	if (!entry)
		return NULL;
	chunk_leave(entry->chunk);
	store_drop(holdings->store, entry->record);
	shared_fd_unref(entry->fd);
	chunk_unref(entry->chunk);
	free(entry->name);
	free(entry->options);
	free(entry->form);
	free(entry);
	return NULL;
}

/* Mappings of a handle are counted with it. */
static bool counts(const struct holding *entry)
{
	return entry->type == WIRE_CREATE_MEMORY || (entry->type == WIRE_MAP_MEMORY && !entry->memory);
}

static uint32_t window_count(const struct holding *entry)
{
	return entry->type == WIRE_RESERVE_WINDOW ? (uint32_t)(entry->range.bytes / WINDOW_BYTES) : 0;
}

/* What the service keeps of it beside the entry: here, in the record, or in executors. */
static uint64_t kept_bytes(const struct holding *entry)
{
	return (entry->name ? strlen(entry->name) + 1 : 0) + entry->option_count * sizeof(*entry->options) +
	       entry->form_bytes + (entry->type == WIRE_MAKE_GRAPH ? entry->image_bytes : 0);
}

uint64_t holdings_cost(const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_MAKE_GRAPH:
		return message->graph.bytes;
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
		return strlen(message->symbol.name) + 1;
	default:
		return WIRE_OPTIONS_MAX * sizeof(struct wire_option);
	}
}

/* The words that say which ids of the entry's kind are in use; NULL: it has none. */
static uint64_t *id_words(struct holdings *holdings, const struct holding *entry)
{
	switch (entry->type) {
	case WIRE_MAKE_GRAPH:
		return holdings->graphs;
	case WIRE_MAKE_ARRAY:
		return holdings->arrays;
	case WIRE_BACK_ARRAY:
		return holdings->backed;
	case WIRE_MAKE_OBJECT:
		return holdings->objects;
	default:
		return NULL;
	}
}

static void remove_entry(struct holdings *holdings, struct holding *entry)
{
	uint64_t *ids = id_words(holdings, entry);

	TAILQ_REMOVE(&holdings->entries, entry, link);
	holdings->count--;
	holdings->kept_bytes -= kept_bytes(entry);
	holdings->fds -= entry->fd || entry->chunk;
	if (counts(entry))
		holdings->memory_bytes -= entry->range.bytes;
	if (entry->chunk)
		entry->chunk->holders--;
	holdings->windows -= window_count(entry);
	if (window_count(entry) && holdings->window_set)
		window_give_run(holdings->window_set, window_at(entry->range.address), window_count(entry));
	if (entry->type == WIRE_MAP_HOST)
		holdings->host_bytes -= entry->range.bytes;
	if (entry->type == WIRE_LOAD_MODULE)
		holdings->modules[entry->module / 64] &= ~(UINT64_C(1) << entry->module % 64);
	if (entry->type == WIRE_FIND_FUNCTION)
		holdings->module_of[entry->function] = 0;
	if (ids)
		ids[entry->attribute / 64] &= ~(UINT64_C(1) << entry->attribute % 64);
	entry_free(holdings, entry);
}

static void add_entry(struct holdings *holdings, struct holding *entry)
{
	uint64_t *ids = id_words(holdings, entry);

	TAILQ_INSERT_TAIL(&holdings->entries, entry, link);
	holdings->count++;
	holdings->kept_bytes += kept_bytes(entry);
	holdings->fds += entry->fd || entry->chunk;
	if (counts(entry))
		holdings->memory_bytes += entry->range.bytes;
	if (entry->chunk)
		entry->chunk->holders++;
	holdings->windows += window_count(entry);
	if (entry->type == WIRE_MAP_HOST)
		holdings->host_bytes += entry->range.bytes;
	if (entry->type == WIRE_LOAD_MODULE)
		holdings->modules[entry->module / 64] |= UINT64_C(1) << entry->module % 64;
	if (entry->type == WIRE_FIND_FUNCTION)
		holdings->module_of[entry->function] = (uint16_t)entry->module;
	if (ids)
		ids[entry->attribute / 64] |= UINT64_C(1) << entry->attribute % 64;
}

void holdings_deinit(struct holdings *holdings)
{
	struct holding *entry;

	while ((entry = TAILQ_FIRST(&holdings->entries)))
		remove_entry(holdings, entry);
}

bool holdings_has_module(const struct holdings *holdings, uint32_t module)
{
	return module < HOLDINGS_IDS && (holdings->modules[module / 64] >> module % 64 & 1);
}

bool holdings_has_function(const struct holdings *holdings, uint32_t function)
{
	return function < HOLDINGS_IDS && holdings->module_of[function];
}

bool holdings_has_graph(const struct holdings *holdings, uint32_t graph)
{
	return graph < FRMPS_GRAPH_IDS && (holdings->graphs[graph / 64] >> graph % 64 & 1);
}

bool holdings_has_array(const struct holdings *holdings, uint32_t array)
{
	return array < FRMPS_ARRAY_IDS && (holdings->arrays[array / 64] >> array % 64 & 1);
}

bool holdings_has_backed(const struct holdings *holdings, uint32_t array)
{
	return array < FRMPS_ARRAY_IDS && (holdings->backed[array / 64] >> array % 64 & 1);
}

bool holdings_has_object(const struct holdings *holdings, uint32_t object)
{
	return object < FRMPS_OBJECT_IDS && (holdings->objects[object / 64] >> object % 64 & 1);
}

static bool touch(const struct wire_range *a, const struct wire_range *b)
{
	return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

bool holdings_backs_array(const struct holdings *holdings, const struct wire_range *range)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_BACK_ARRAY && touch(&entry->range, range))
			return true;
	return false;
}

static bool is_range(const struct holding *entry)
{
	return entry->type == WIRE_MAP_MEMORY || entry->type == WIRE_MAP_HOST;
}

bool holdings_overlaps(const struct holdings *holdings, const struct wire_range *range)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (is_range(entry) && touch(&entry->range, range))
			return true;
	return false;
}

struct holding *holdings_find_range(
	const struct holdings *holdings, enum wire_type type, uint64_t address, uint64_t bytes)
{
	struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == type && entry->range.address == address && entry->range.bytes == bytes)
			return entry;
	return NULL;
}

struct holding *holdings_find_memory(const struct holdings *holdings, uint64_t handle)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link)
		if (entry->type == WIRE_CREATE_MEMORY && entry->memory == handle)
			return entry;
	return NULL;
}

bool holdings_is_only_memory(const struct holdings *holdings, const struct holding *memory)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry != memory && entry->type == WIRE_CREATE_MEMORY && entry->chunk == memory->chunk)
			return false;
	return true;
}

static struct holding *find_chunk(
	const struct holdings *holdings, enum wire_type type, const struct chunk *chunk)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link)
		if (entry->type == type && entry->chunk == chunk)
			return entry;
	return NULL;
}

struct holding *holdings_find_mapping(const struct holdings *holdings, const struct chunk *chunk)
{
	return find_chunk(holdings, WIRE_MAP_MEMORY, chunk);
}

struct holding *holdings_find_address(const struct holdings *holdings, uint64_t address)
{
	struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_MAP_MEMORY && address - entry->range.address < entry->range.bytes)
			return entry;
	return NULL;
}

struct holding *holdings_find_token(const struct holdings *holdings, const uint64_t token[2])
{
	struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->chunk && entry->type != WIRE_BACK_ARRAY && entry->chunk->token[0] == token[0] &&
			entry->chunk->token[1] == token[1])
			return entry;
	return NULL;
}

/* The entry that says the same thing: a setting's earlier value, a global that is known. */
static struct holding *find_same(const struct holdings *holdings, const struct wire_message *message)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link) {
		if (entry->type != message->type)
			continue;
		if (message->type == WIRE_SET_FUNCTION && entry->function == message->set_function.function &&
			entry->attribute == message->set_function.attribute)
			return entry;
		if (message->type == WIRE_FIND_GLOBAL && entry->module == message->symbol.module &&
			strcmp(entry->name, message->symbol.name) == 0)
			return entry;
	}
	return NULL;
}

static int fill_module(
	struct holding *entry, const struct wire_load_module *load, const struct wire_u64s *values)
{
	entry->value = values->count ? values->at[0] == 1 : 0;
	entry->module = load->module;
	entry->kind = load->kind;
	entry->image_bytes = load->bytes;
	entry->memory = values->count > 3 && values->at[3] ? load->variables : WIRE_VARIABLES_OF_DRIVER;
	if (!load->options.count)
		return 0;
	entry->options = calloc(load->options.count, sizeof(*entry->options));
	if (!entry->options)
		return -ENOMEM;
	memcpy(entry->options, load->options.at, load->options.count * sizeof(*entry->options));
	entry->option_count = load->options.count;
	return 0;
}

static int fill_symbol(
	struct holding *entry, const struct wire_symbol *symbol, const struct wire_u64s *values)
{
	entry->module = symbol->module;
	entry->function = symbol->function;
	entry->name = strdup(symbol->name);
	if (entry->type == WIRE_FIND_GLOBAL && values->count >= 2)
		memcpy(entry->global, values->at, sizeof(entry->global));
	return entry->name ? 0 : -ENOMEM;
}

static int fill_form(struct holding *entry, uint32_t id, const void *form, size_t bytes)
{
	entry->attribute = id;
	entry->form = malloc(bytes);
	if (!entry->form)
		return -ENOMEM;
	memcpy(entry->form, form, bytes);
	entry->form_bytes = (uint32_t)bytes;
	return 0;
}

/* With the handle that it got: standbys must give it the same. */
static int fill_object(
	struct holding *entry, const struct wire_object *object, const struct wire_u64s *values)
{
	struct wire_object form = *object;

	form.value = values->count ? values->at[0] : 0;
	return fill_form(entry, form.object, &form, sizeof(form));
}

static int fill(const struct holdings *holdings, struct holding *entry, const struct wire_message *message,
	const struct wire_u64s *values)
{
	entry->type = message->type == WIRE_IMPORT_MEMORY ? WIRE_CREATE_MEMORY : message->type;
	switch (message->type) {
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		entry->range = message->range;
		return 0;
	case WIRE_CREATE_MEMORY:
	case WIRE_IMPORT_MEMORY:
		entry->memory = message->memory.handle;
		entry->range.bytes = message->memory.bytes;
		return 0;
	case WIRE_RESERVE_WINDOW:
		entry->range = (struct wire_range){message->window.address, message->window.bytes, 0};
		return 0;
	case WIRE_LOAD_MODULE:
		return fill_module(entry, &message->load_module, values);
	case WIRE_MAKE_GRAPH:
		entry->attribute = message->graph.graph;
		entry->image_bytes = message->graph.bytes;
		return 0;
	case WIRE_MAKE_ARRAY:
		return fill_form(entry, message->array.array, &message->array, sizeof(message->array));
	case WIRE_BACK_ARRAY:
		entry->attribute = message->back_array.array;
		entry->range = (struct wire_range){message->back_array.address, message->back_array.bytes, 0};
		entry->global[0] = message->back_array.offset;
		entry->global[1] = message->back_array.span;
		return 0;
	case WIRE_MAKE_OBJECT:
		return fill_object(entry, &message->object, values);
	case WIRE_SET_FUNCTION:
		entry->function = message->set_function.function;
		entry->module = holdings->module_of[entry->function];
		entry->attribute = message->set_function.attribute;
		entry->value = message->set_function.value;
		return 0;
	default:
		return fill_symbol(entry, &message->symbol, values);
	}
}

int holdings_note(struct holdings *holdings, const struct wire_message *message,
	const struct wire_u64s *values, struct shared_fd *fd, struct chunk *chunk, struct holding **ret_entry)
{
	struct holding *entry = NULL;

	if (message->type == WIRE_SET_FUNCTION || message->type == WIRE_FIND_GLOBAL)
		entry = find_same(holdings, message);
	if (entry) {
		if (message->type == WIRE_SET_FUNCTION)
			entry->value = message->set_function.value;
		*ret_entry = message->type == WIRE_SET_FUNCTION ? entry : NULL;
		return 0;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry || fill(holdings, entry, message, values)) {
		entry_free(holdings, entry);
		return -ENOMEM;
	}
	entry->fd = fd ? shared_fd_ref(fd) : NULL;
	entry->chunk = chunk ? chunk_ref(chunk) : NULL;
	if (chunk && entry->type == WIRE_MAP_MEMORY) {
		const struct holding *created = find_chunk(holdings, WIRE_CREATE_MEMORY, chunk);

		entry->memory = created ? created->memory : 0;
	}
	add_entry(holdings, entry);
	*ret_entry = entry;
	return 0;
}

bool holdings_has(const struct holdings *holdings, const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		return holdings_find_range(
			holdings, message->type, message->range.address, message->range.bytes);
	case WIRE_CREATE_MEMORY:
	case WIRE_IMPORT_MEMORY:
		return holdings_find_memory(holdings, message->memory.handle);
	case WIRE_RESERVE_WINDOW:
		return holdings_find_range(
			holdings, message->type, message->window.address, message->window.bytes);
	case WIRE_LOAD_MODULE:
		return holdings_has_module(holdings, message->load_module.module);
	case WIRE_UNLOAD_MODULE:
		return holdings_has_module(holdings, message->symbol.module);
	case WIRE_FIND_FUNCTION:
		return holdings_has_function(holdings, message->symbol.function);
	case WIRE_MAKE_GRAPH:
	case WIRE_DROP_GRAPH:
		return holdings_has_graph(holdings, message->graph.graph);
	case WIRE_MAKE_ARRAY:
	case WIRE_DROP_ARRAY:
		return holdings_has_array(holdings, message->array.array);
	case WIRE_BACK_ARRAY:
		return holdings_has_backed(holdings, message->back_array.array);
	case WIRE_MAKE_OBJECT:
	case WIRE_DROP_OBJECT:
		return holdings_has_object(holdings, message->object.object);
	default:
		return false; /* settings and globals are noted as often as one likes */
	}
}

void holdings_keep(struct holdings *holdings, struct holding *entry)
{
	size_t options = entry->option_count * sizeof(*entry->options);
	size_t name = entry->name ? strlen(entry->name) + 1 : 0;
	struct kept_holding *kept;

	if (!holdings->store)
		return;
	kept = calloc(1, sizeof(*kept) + options + name + entry->form_bytes);
	log_bug_on(!kept);
	*kept = (struct kept_holding){.session = holdings->session,
		.address = entry->range.address,
		.bytes = entry->range.bytes,
		.flags = entry->range.flags,
		.memory = entry->memory,
		.image_bytes = entry->image_bytes,
		.global = {entry->global[0], entry->global[1]},
		.value = entry->value,
		.type = entry->type,
		.module = entry->module,
		.function = entry->function,
		.kind = entry->kind,
		.attribute = entry->attribute,
		.fd = entry->fd ? shared_fd_keep(entry->fd, holdings->store) : 0,
		.option_count = entry->option_count,
		.name_bytes = (uint32_t)name,
		.form_bytes = entry->form_bytes};
	chunk_name(entry->chunk, &kept->chunk);
	if (options)
		memcpy(kept + 1, entry->options, options);
	if (name)
		memcpy((char *)(kept + 1) + options, entry->name, name);
	if (entry->form)
		memcpy((char *)(kept + 1) + options + name, entry->form, entry->form_bytes);
	if (!entry->serial)
		entry->serial = store_serial(holdings->store);
	entry->record = store_put(holdings->store, entry->record, RECORD_HOLDING, entry->serial, kept,
		sizeof(*kept) + options + name + entry->form_bytes);
	free(kept);
}

static bool has_its_form(const struct kept_holding *kept)
{
	if (kept->type == WIRE_MAKE_ARRAY)
		return kept->form_bytes == sizeof(struct wire_array);
	if (kept->type == WIRE_MAKE_OBJECT)
		return kept->form_bytes == sizeof(struct wire_object);
	return !kept->form_bytes;
}

static bool take_kept(struct holding *entry, const struct kept_holding *kept, size_t bytes)
{
	size_t options = kept->option_count * sizeof(*entry->options);

	if (bytes < sizeof(*kept) + options + kept->name_bytes + kept->form_bytes || !has_its_form(kept))
		return false;
	entry->type = (enum wire_type)kept->type;
	entry->range = (struct wire_range){kept->address, kept->bytes, kept->flags};
	entry->memory = kept->memory;
	entry->image_bytes = kept->image_bytes;
	memcpy(entry->global, kept->global, sizeof(entry->global));
	entry->value = kept->value;
	entry->module = kept->module;
	entry->function = kept->function;
	entry->kind = kept->kind;
	entry->attribute = kept->attribute;
	entry->option_count = kept->option_count;
	if (options) {
		entry->options = malloc(options);
		log_bug_on(!entry->options);
		memcpy(entry->options, kept + 1, options);
	}
	if (kept->name_bytes)
		entry->name = strndup((const char *)(kept + 1) + options, kept->name_bytes);
	if (kept->form_bytes)
		log_bug_on(fill_form(entry, kept->attribute,
			(const char *)(kept + 1) + options + kept->name_bytes, kept->form_bytes));
	return true;
}

/* Ids of a kind are below this. */
static uint32_t id_bound(uint32_t type)
{
	switch (type) {
	case WIRE_MAKE_GRAPH:
		return FRMPS_GRAPH_IDS;
	case WIRE_MAKE_ARRAY:
	case WIRE_BACK_ARRAY:
		return FRMPS_ARRAY_IDS;
	case WIRE_MAKE_OBJECT:
		return FRMPS_OBJECT_IDS;
	default:
		return UINT32_MAX;
	}
}

int holdings_adopt(struct holdings *holdings, const struct record *record, const struct kept_holding *kept,
	size_t bytes, struct shared_fd *fd, struct chunk *chunk)
{
	struct holding *entry = calloc(1, sizeof(*entry));

	log_bug_on(!entry);
	if (kept->module >= HOLDINGS_IDS || kept->function >= HOLDINGS_IDS ||
		kept->attribute >= id_bound(kept->type) || !take_kept(entry, kept, bytes)) {
		free(entry);
		return -EINVAL;
	}
	entry->fd = fd;
	entry->chunk = chunk;
	entry->record = record;
	entry->serial = record_key(record);
	add_entry(holdings, entry);
	if (window_count(entry) && holdings->window_set)
		window_take_again(holdings->window_set, window_at(entry->range.address), window_count(entry));
	return 0;
}

void holdings_drop_range(struct holdings *holdings, struct holding *entry)
{
	remove_entry(holdings, entry);
}

static void drop_module(struct holdings *holdings, uint32_t module)
{
	struct holding *entry = TAILQ_LAST(&holdings->entries, holding_list), *previous;

	/* The module itself is the last to go: as long as it is there, this can be done again. */
	for (; entry; entry = previous) {
		previous = TAILQ_PREV(entry, holding_list, link);
		if (entry->module == module && entry->module)
			remove_entry(holdings, entry);
	}
}

static void drop_id(struct holdings *holdings, enum wire_type type, uint32_t id)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link) {
		if (entry->type == type && entry->attribute == id) {
			remove_entry(holdings, entry);
			return;
		}
	}
}

static bool is_over(const struct holding *entry, uint32_t array)
{
	const struct wire_object *object = entry->form;

	return entry->type == WIRE_MAKE_OBJECT && object->resource <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
	       object->array == array;
}

static void drop_array(struct holdings *holdings, uint32_t array)
{
	struct holding *entry = TAILQ_LAST(&holdings->entries, holding_list), *previous;

	/* The array itself is the last to go: as long as it is there, this can be done again. */
	for (; entry; entry = previous) {
		previous = TAILQ_PREV(entry, holding_list, link);
		if (is_over(entry, array) || (entry->type == WIRE_BACK_ARRAY && entry->attribute == array))
			remove_entry(holdings, entry);
	}
	drop_id(holdings, WIRE_MAKE_ARRAY, array);
}

void holdings_drop(struct holdings *holdings, const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_UNLOAD_MODULE:
		drop_module(holdings, message->symbol.module);
		break;
	case WIRE_DROP_GRAPH:
		drop_id(holdings, WIRE_MAKE_GRAPH, message->graph.graph);
		break;
	case WIRE_DROP_ARRAY:
		drop_array(holdings, message->array.array);
		break;
	default:
		drop_id(holdings, WIRE_MAKE_OBJECT, message->object.object);
		break;
	}
}

void holdings_message(const struct holding *entry, uint64_t session, struct wire_message *message)
{
	memset(message, 0, sizeof(*message));
	message->type = entry->type;
	message->session = session;
	switch (entry->type) {
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		message->range = entry->range;
		break;
	case WIRE_RESERVE_WINDOW:
		message->window =
			(struct wire_window){.address = entry->range.address, .bytes = entry->range.bytes};
		break;
	case WIRE_LOAD_MODULE:
		message->load_module = (struct wire_load_module){entry->module, entry->kind,
			entry->image_bytes, {entry->options, entry->option_count},
			entry->memory ? entry->memory : WIRE_VARIABLES_OF_DRIVER, true};
		break;
	case WIRE_MAKE_GRAPH:
		message->graph = (struct wire_graph){entry->attribute, entry->image_bytes};
		break;
	case WIRE_MAKE_ARRAY:
		memcpy(&message->array, entry->form, sizeof(message->array));
		break;
	case WIRE_BACK_ARRAY:
		message->back_array = (struct wire_back_array){entry->attribute, entry->range.address,
			entry->range.bytes, entry->global[0], entry->global[1]};
		break;
	case WIRE_MAKE_OBJECT:
		memcpy(&message->object, entry->form, sizeof(message->object));
		break;
	case WIRE_SET_FUNCTION:
		message->set_function =
			(struct wire_set_function){entry->function, entry->attribute, entry->value};
		break;
	default:
		message->symbol = (struct wire_symbol){entry->module, entry->function, entry->name};
		break;
	}
}

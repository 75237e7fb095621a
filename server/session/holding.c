// See holding.h. This file alone decides which fields of an entry a request fills in, and which
// fields the record has.

#include "server/session/holding.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/command.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/message.h"
#include "server/session/records.h"

struct holding *holding_free(struct holding *entry)
{
	if (!entry)
		return NULL;
	shared_fd_unref(entry->fd);
	chunk_unref(entry->chunk);
	free(entry->name);
	free(entry->options);
	free(entry->form);
	free(entry);
	return NULL;
}

uint64_t holding_kept_bytes(const struct holding *entry)
{
	return (entry->name ? strlen(entry->name) + 1 : 0) + entry->option_count * sizeof(*entry->options) +
	       entry->form_bytes + (entry->type == WIRE_MAKE_GRAPH ? entry->image_bytes : 0);
}

uint64_t holding_cost(const struct wire_message *message)
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

static size_t payload_bytes(const struct holding *entry)
{
	return sizeof(struct kept_holding) + entry->option_count * sizeof(*entry->options) +
	       (entry->name ? strlen(entry->name) + 1 : 0) + entry->form_bytes;
}

uint64_t holding_record_bytes(const struct holding *entry)
{
	return store_share(payload_bytes(entry));
}

size_t holding_record_cost(const struct wire_message *message)
{
	/* A graph's description is a file. */
	return sizeof(struct kept_holding) + (message->type == WIRE_MAKE_GRAPH ? 0 : holding_cost(message));
}

/*
 * From a request, and back to a request
 */

static int fill_module(
	struct holding *entry, const struct wire_load_module *load, const struct wire_u64s *values)
{
	entry->value = values->count ? values->at[0] == 1 : 0;
	entry->module = load->module;
	entry->kind = load->kind;
	entry->image_bytes = load->bytes;
	entry->memory = values->count > 3 && values->at[3] ? load->variables : WIRE_VARIABLES_OF_DRIVER;
	entry->global[0] = values->count > 2 ? values->at[2] : WIRE_CODE_OF_DRIVER;
	entry->global[1] = values->count > 5 ? values->at[5] : 0;
	entry->unpacked_bytes = values->count > 6 ? values->at[6] : 0;
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

/* With the handle in the reply: standbys must give the object the same handle. */
static int fill_object(
	struct holding *entry, const struct wire_object *object, const struct wire_u64s *values)
{
	struct wire_object form = *object;

	form.value = values->count ? values->at[0] : 0;
	return fill_form(entry, form.object, &form, sizeof(form));
}

static int fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
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
		entry->attribute = message->set_function.attribute;
		entry->value = message->set_function.value;
		return 0;
	case WIRE_SET_LIMIT:
		entry->attribute = message->limit.limit;
		entry->value = (int64_t)message->limit.value;
		return 0;
	default:
		return fill_symbol(entry, &message->symbol, values);
	}
}

struct holding *holding_new(const struct wire_message *message, const struct wire_u64s *values)
{
	struct holding *entry = calloc(1, sizeof(*entry));

	if (!entry || fill(entry, message, values))
		return holding_free(entry);
	return entry;
}

void holding_message(const struct holding *entry, uint64_t session, struct wire_message *message)
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
			entry->memory ? entry->memory : WIRE_VARIABLES_OF_DRIVER, true, 0, entry->global[0],
			entry->unpacked_bytes};
		break;
	case WIRE_MAKE_GRAPH:
		message->graph = (struct wire_graph){entry->attribute, entry->image_bytes, 0};
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
	case WIRE_SET_LIMIT:
		message->limit = (struct wire_limit){entry->attribute, (uint64_t)entry->value};
		break;
	default:
		message->symbol = (struct wire_symbol){
			.module = entry->module, .function = entry->function, .name = entry->name};
		break;
	}
}

/*
 * To a record, and back
 */

void holding_keep(struct holding *entry, struct store *store, uint64_t session)
{
	size_t options = entry->option_count * sizeof(*entry->options);
	size_t name = entry->name ? strlen(entry->name) + 1 : 0;
	struct kept_holding *kept;

	if (!store)
		return;
	kept = calloc(1, payload_bytes(entry));
	log_bug_on(!kept);
	*kept = (struct kept_holding){.session = session,
		.address = entry->range.address,
		.bytes = entry->range.bytes,
		.flags = entry->range.flags,
		.memory = entry->memory,
		.image_bytes = entry->image_bytes,
		.unpacked_bytes = entry->unpacked_bytes,
		.global = {entry->global[0], entry->global[1]},
		.value = entry->value,
		.type = entry->type,
		.module = entry->module,
		.function = entry->function,
		.kind = entry->kind,
		.attribute = entry->attribute,
		.fd = entry->fd ? entry->fd->key : 0,
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
		entry->serial = store_serial(store);
	entry->record =
		store_put(store, entry->record, RECORD_HOLDING, entry->serial, kept, payload_bytes(entry));
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

static bool has_its_name(const struct kept_holding *kept)
{
	return kept->name_bytes || (kept->type != WIRE_FIND_FUNCTION && kept->type != WIRE_FIND_GLOBAL);
}

static bool take_kept(struct holding *entry, const struct kept_holding *kept, size_t bytes)
{
	size_t options = kept->option_count * sizeof(*entry->options);

	if (bytes < sizeof(*kept) + options + kept->name_bytes + kept->form_bytes || !has_its_form(kept) ||
		!has_its_name(kept))
		return false;
	entry->type = (enum wire_type)kept->type;
	entry->range = (struct wire_range){kept->address, kept->bytes, kept->flags};
	entry->memory = kept->memory;
	entry->image_bytes = kept->image_bytes;
	entry->unpacked_bytes = kept->unpacked_bytes;
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

struct holding *holding_adopt(const struct record *record, const struct kept_holding *kept, size_t bytes)
{
	struct holding *entry = calloc(1, sizeof(*entry));

	log_bug_on(!entry);
	if (!message_is_kept((enum wire_type)kept->type) || kept->module >= HOLDINGS_IDS ||
		kept->function >= HOLDINGS_IDS || kept->attribute >= id_bound(kept->type) ||
		!take_kept(entry, kept, bytes))
		return holding_free(entry);
	entry->record = record;
	entry->serial = record_key(record);
	return entry;
}

// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The holdings. See holdings.h. A list, searched from its end: requests are rare and look for what is young.

#include "server/session/holdings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"

void holdings_init(struct holdings *holdings)
{
	memset(holdings, 0, sizeof(*holdings));
	TAILQ_INIT(&holdings->entries);
}

static struct holding *entry_free(struct holding *entry)
{
	if (!entry)
		return NULL;
	shared_fd_unref(entry->fd);
	chunk_unref(entry->chunk);
	free(entry->name);
	free(entry->options);
	free(entry);
	return NULL;
}

static void remove_entry(struct holdings *holdings, struct holding *entry)
{
	TAILQ_REMOVE(&holdings->entries, entry, link);
	holdings->count--;
	if (entry->type == WIRE_MAP_MEMORY)
		holdings->memory_bytes -= entry->range.bytes;
	if (entry->type == WIRE_MAP_HOST)
		holdings->host_bytes -= entry->range.bytes;
	if (entry->type == WIRE_LOAD_MODULE)
		holdings->modules[entry->module / 64] &= ~(UINT64_C(1) << entry->module % 64);
	if (entry->type == WIRE_FIND_FUNCTION)
		holdings->module_of[entry->function] = 0;
	entry_free(entry);
}

static void add_entry(struct holdings *holdings, struct holding *entry)
{
	TAILQ_INSERT_TAIL(&holdings->entries, entry, link);
	holdings->count++;
	if (entry->type == WIRE_MAP_MEMORY)
		holdings->memory_bytes += entry->range.bytes;
	if (entry->type == WIRE_MAP_HOST)
		holdings->host_bytes += entry->range.bytes;
	if (entry->type == WIRE_LOAD_MODULE)
		holdings->modules[entry->module / 64] |= UINT64_C(1) << entry->module % 64;
	if (entry->type == WIRE_FIND_FUNCTION)
		holdings->module_of[entry->function] = (uint16_t)entry->module;
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

static bool is_range(const struct holding *entry)
{
	return entry->type == WIRE_MAP_MEMORY || entry->type == WIRE_MAP_HOST;
}

bool holdings_overlaps(const struct holdings *holdings, const struct wire_range *range)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (is_range(entry) && range->address < entry->range.address + entry->range.bytes &&
			entry->range.address < range->address + range->bytes)
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

static int fill_module(struct holding *entry, const struct wire_load_module *load)
{
	entry->module = load->module;
	entry->kind = load->kind;
	entry->image_bytes = load->bytes;
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

static int fill(const struct holdings *holdings, struct holding *entry, const struct wire_message *message,
	const struct wire_u64s *values)
{
	entry->type = message->type;
	switch (message->type) {
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		entry->range = message->range;
		return 0;
	case WIRE_LOAD_MODULE:
		return fill_module(entry, &message->load_module);
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
		entry_free(entry);
		return -ENOMEM;
	}
	entry->fd = fd ? shared_fd_ref(fd) : NULL;
	entry->chunk = chunk ? chunk_ref(chunk) : NULL;
	add_entry(holdings, entry);
	*ret_entry = entry;
	return 0;
}

void holdings_drop_range(struct holdings *holdings, struct holding *entry)
{
	remove_entry(holdings, entry);
}

void holdings_drop_module(struct holdings *holdings, uint32_t module)
{
	struct holding *entry = TAILQ_FIRST(&holdings->entries), *next;

	for (; entry; entry = next) {
		next = TAILQ_NEXT(entry, link);
		if (!is_range(entry) && entry->module == module)
			remove_entry(holdings, entry);
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
	case WIRE_LOAD_MODULE:
		message->load_module = (struct wire_load_module){entry->module, entry->kind,
			entry->image_bytes, {entry->options, entry->option_count}};
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

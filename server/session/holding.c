// See holding.h. This file alone decides which fields the record has.

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

static size_t payload_bytes(const struct holding *entry)
{
	return sizeof(struct kept_holding) + entry->option_count * sizeof(*entry->options) +
	       (entry->name ? strlen(entry->name) + 1 : 0) + entry->form_bytes;
}

uint64_t holding_record_bytes(const struct holding *entry)
{
	return store_share(payload_bytes(entry));
}

int holding_fill_form(struct holding *entry, uint32_t id, const void *form, size_t bytes)
{
	entry->attribute = id;
	entry->form = malloc(bytes);
	if (!entry->form)
		return -ENOMEM;
	memcpy(entry->form, form, bytes);
	entry->form_bytes = (uint32_t)bytes;
	return 0;
}

/*
 * To a record, and back
 */

void holding_save(struct holding *entry, struct store *store, uint64_t session)
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
		.offset = entry->range.offset,
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

static bool take_kept(struct holding *entry, const struct kept_holding *kept, size_t bytes)
{
	size_t options = kept->option_count * sizeof(*entry->options);

	if (bytes < sizeof(*kept) + options + kept->name_bytes + kept->form_bytes)
		return false;
	entry->type = (enum wire_type)kept->type;
	entry->range = (struct wire_range){
		.address = kept->address, .bytes = kept->bytes, .flags = kept->flags, .offset = kept->offset};
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
		log_bug_on(holding_fill_form(entry, kept->attribute,
			(const char *)(kept + 1) + options + kept->name_bytes, kept->form_bytes));
	return true;
}

struct holding *holding_adopt(const struct record *record, const struct kept_holding *kept, size_t bytes)
{
	struct holding *entry = calloc(1, sizeof(*entry));

	log_bug_on(!entry);
	if (kept->module >= HOLDINGS_IDS || kept->function >= HOLDINGS_IDS || !take_kept(entry, kept, bytes))
		return holding_free(entry);
	entry->record = record;
	entry->serial = record_key(record);
	return entry;
}

// See code.h. The kernels are an array that is sorted by address. Faults search the array. The lock
// is a leaf, and the driver is never called under it.

#include "server/backend/cuda/code.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/hash.h"
#include "server/backend/elf.h"
#include "server/backend/kernels.h"
#include "server/grow.h"
#include "server/log.h"
#include "server/search.h"

#define TEXT ".text."

/* ---- facts ---- */

struct code_fact {
	uint64_t name, bytes; /* name: the hash of the name */
	struct backend_shape shape;
};

/* Two kernels of one module with the same hash count as the shorter, without a shape. */
static uint64_t hash(const char *text)
{
	return hash_add(HASH_START, text, strlen(text));
}

static void add_fact(struct code_facts *facts, struct code_fact fact)
{
	/* Otherwise the kernel is unknown. */
	if (grow(&facts->at, facts->count, &facts->room, sizeof(*facts->at)))
		facts->at[facts->count++] = fact;
}

/* By name, the shortest first. */
static int compare_facts(const void *a, const void *b)
{
	const struct code_fact *one = a, *other = b;

	if (one->name != other->name)
		return one->name < other->name ? -1 : 1;
	return one->bytes < other->bytes ? -1 : one->bytes > other->bytes;
}

/* By the section of a kernel's code: the section with its attributes; 0: none. NULL without
 * memory. */
static uint32_t *find_infos(const struct elf *elf)
{
	uint32_t *infos = calloc(elf->count, sizeof(*infos));

	for (uint64_t i = 0; infos && i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		if (section.sh_type == KERNELS_INFO && section.sh_info < elf->count)
			infos[section.sh_info] = (uint32_t)i;
	}
	return infos;
}

/* @left: bytes that may still be looked at, as sections may overlap */
static struct backend_shape shape_of(
	const struct elf *elf, const uint32_t *infos, uint64_t index, uint64_t *left)
{
	struct backend_shape shape = {.cluster_most = 0};
	Elf64_Shdr info;

	if (!infos || !infos[index])
		return shape;
	info = elf_section(elf, infos[index]);
	if (info.sh_size > *left)
		return shape;
	*left -= info.sh_size;
	kernels_shape(elf->image + info.sh_offset, info.sh_size, &shape);
	return shape;
}

void code_facts_add(struct code_facts *facts, const uint8_t *cubin, size_t bytes)
{
	/* Remaining bytes for names, as names may overlap, and for attributes; a name's length. */
	uint64_t left = bytes, attributes_left = bytes, length;
	uint32_t *infos;
	struct elf elf;
	Elf64_Shdr names;

	if (!elf_open(cubin, bytes, &elf))
		return;
	infos = find_infos(&elf);
	names = elf_section(&elf, elf.names);
	for (uint64_t i = 0; i < elf.count; i++) {
		Elf64_Shdr section = elf_section(&elf, i);
		/* Code without bytes in the image could be of any length. */
		bool is_code = section.sh_type != SHT_NOBITS && elf_section_begins(&elf, &section, TEXT);
		const char *name = is_code ? elf_text(&elf, &names, section.sh_name) : NULL;

		if (!is_code)
			continue;
		length = name ? strlen(name) : bytes;
		if (length >= left)
			break;
		left -= length + 1;
		add_fact(facts, (struct code_fact){hash(name + strlen(TEXT)), section.sh_size,
					shape_of(&elf, infos, i, &attributes_left)});
	}
	free(infos);
}

void code_facts_sort(struct code_facts *facts)
{
	if (facts->count)
		qsort(facts->at, facts->count, sizeof(facts->at[0]), compare_facts);
}

/* The first of the name. Return: facts->count: there is none */
static uint32_t find_fact(const struct code_facts *facts, uint64_t name)
{
	uint32_t from = 0, to = facts->count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (facts->at[middle].name < name)
			from = middle + 1;
		else
			to = middle;
	}
	return from < facts->count && facts->at[from].name == name ? from : facts->count;
}

uint64_t code_length(const struct code_facts *facts, const char *kernel)
{
	uint32_t at = find_fact(facts, hash(kernel));

	return at < facts->count ? facts->at[at].bytes : 0;
}

static bool are_same(const struct backend_shape *a, const struct backend_shape *b)
{
	return !memcmp(a->block, b->block, sizeof(a->block)) && a->cluster_most == b->cluster_most &&
	       a->counts_clusters == b->counts_clusters;
}

struct backend_shape code_shape(const struct code_facts *facts, const char *kernel)
{
	uint64_t name = hash(kernel);
	uint32_t first = find_fact(facts, name);
	struct backend_shape any = {.cluster_most = 0};

	for (uint32_t i = first; i < facts->count && facts->at[i].name == name; i++)
		if (!are_same(&facts->at[i].shape, &facts->at[first].shape))
			return any;
	return first < facts->count ? facts->at[first].shape : any;
}

void code_facts_deinit(struct code_facts *facts)
{
	free(facts->at);
	*facts = (struct code_facts){0};
}

/* ---- kernels ---- */

static struct {
	pthread_mutex_t lock;
	struct code *at; /* by entry */
	uint32_t count, room;
} codes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock. Return: of the first kernel that begins behind the address */
static uint32_t above(uint64_t address)
{
	return search_above(codes.at, codes.count, sizeof(*codes.at), offsetof(struct code, entry), address);
}

void code_note(const struct code *code, const char *kernel)
{
	uint32_t at;

	pthread_mutex_lock(&codes.lock);
	at = above(code->entry);
	if (!grow(&codes.at, codes.count, &codes.room, sizeof(*codes.at))) {
		log_warning("no memory to record the place of a kernel: its faults cannot be attributed");
	} else {
		memmove(&codes.at[at + 1], &codes.at[at], (codes.count - at) * sizeof(*code));
		codes.at[at] = *code;
		snprintf(codes.at[at].kernel, sizeof(codes.at[at].kernel), "%s", kernel);
		codes.count++;
	}
	pthread_mutex_unlock(&codes.lock);
}

void code_forget(const struct backend_module *module)
{
	uint32_t left = 0;

	pthread_mutex_lock(&codes.lock);
	for (uint32_t i = 0; i < codes.count; i++)
		if (codes.at[i].module != module)
			codes.at[left++] = codes.at[i];
	codes.count = left;
	pthread_mutex_unlock(&codes.lock);
}

/* Under the lock. A program's image gives the length: the kernel ends at the latest where the next
 * begins. */
static void take(uint32_t at, struct code *ret_code)
{
	*ret_code = codes.at[at];
	if (at + 1 < codes.count && codes.at[at + 1].entry - ret_code->entry < ret_code->bytes)
		ret_code->bytes = codes.at[at + 1].entry - ret_code->entry;
}

static bool find(uint64_t address, bool is_entry, struct code *ret_code)
{
	struct code code;
	bool found = false;
	uint32_t next;

	pthread_mutex_lock(&codes.lock);
	next = above(address);
	if (next) {
		take(next - 1, &code);
		found = is_entry ? code.entry == address : address - code.entry < code.bytes;
	}
	pthread_mutex_unlock(&codes.lock);
	if (found)
		*ret_code = code;
	return found;
}

bool code_find_entry(uint64_t entry, struct code *ret_code)
{
	return find(entry, true, ret_code);
}

bool code_find(uint64_t address, struct code *ret_code)
{
	return find(address, false, ret_code);
}

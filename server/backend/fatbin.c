// See fatbin.h. The members are untrusted, but for the checks of image_check(): they lie inside. A
// compressed member's claim about its size is used only as the size of a buffer, and counts against
// the room.

#include "server/backend/fatbin.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static bool unpack_into(const struct fatbin_target *target, const uint8_t *packed, uint8_t *out)
{
	size_t bytes = target->unpacked_bytes;

	if (target->flags & FATBIN_FLAG_ZSTD)
		return ZSTD_decompress(out, bytes, packed, target->packed_bytes) == bytes;
	return LZ4_decompress_safe((const char *)packed, (char *)out, (int)target->packed_bytes,
		       (int)bytes) == (int)bytes;
}

/* The size that a member for a device claims to unpack to; 0: not compressed. @at: its header */
static uint64_t claim(const uint8_t *at)
{
	struct fatbin_target target;

	memcpy(&target, at + sizeof(struct fatbin_entry), sizeof(target));
	return target.flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD) ? target.unpacked_bytes : 0;
}

/* A rewriting under way: of the image up to `at`; nothing is copied before something is
 * replaced. */
struct rewrite {
	const uint8_t *image;
	struct fatbin_bytes out;
	size_t allocated;
	unsigned members; /* that may still be shown */
	uint64_t growth;  /* by which contents may still become longer */
};

/* A compressed member's contents. */
static CUresult unpack(const struct fatbin_target *target, const uint8_t *packed, uint64_t payload_bytes,
	struct fatbin_bytes *ret)
{
	uint8_t *out;

	if (target->packed_bytes > payload_bytes || target->packed_bytes > INT32_MAX ||
		!target->unpacked_bytes || target->unpacked_bytes >= FATBIN_UNPACKED_MOST)
		return CUDA_ERROR_INVALID_IMAGE;
	out = malloc(target->unpacked_bytes);
	if (!out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!unpack_into(target, packed, out)) {
		free(out);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*ret = (struct fatbin_bytes){out, target->unpacked_bytes};
	return CUDA_SUCCESS;
}

/* Doubles the allocation: a small image may have very many members, and no member copies all those
 * before. */
static bool append(struct rewrite *rewrite, const void *at, size_t count)
{
	struct fatbin_bytes *out = &rewrite->out;
	uint8_t *grown = out->at;

	if (!grown || count > rewrite->allocated - out->count) {
		rewrite->allocated = 2 * (out->count + count);
		grown = realloc(out->at, rewrite->allocated);
	}
	if (!grown)
		return false;
	memcpy(grown + out->count, at, count);
	*out = (struct fatbin_bytes){grown, out->count + count};
	return true;
}

/* A member unchanged, but for its contents, which are not compressed. */
static bool append_member(struct rewrite *rewrite, const uint8_t *at, struct fatbin_entry entry,
	const struct fatbin_bytes *contents)
{
	static const uint8_t zeros[8];
	size_t start = rewrite->out.count, padding = -contents->count % sizeof(zeros);
	struct fatbin_target target;

	memcpy(&target, at + sizeof(entry), sizeof(target));
	target.flags &= ~(FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD);
	target.packed_bytes = 0;
	target.unpacked_bytes = 0;
	entry.payload_bytes = contents->count + padding;
	if (!append(rewrite, at, entry.header_bytes) || !append(rewrite, contents->at, contents->count) ||
		!append(rewrite, zeros, padding))
		return false;
	memcpy(rewrite->out.at + start, &entry, sizeof(entry));
	memcpy(rewrite->out.at + start + sizeof(entry), &target, sizeof(target));
	return true;
}

/* Shows contents. A small member may become as large as a large member. */
static CUresult show_contents(struct rewrite *rewrite, const uint8_t *at, size_t bytes, fatbin_visit *visit,
	void *context, struct fatbin_bytes *ret)
{
	CUresult code = visit(context, at, bytes, ret);
	uint64_t more = ret->count > bytes ? ret->count - bytes : 0;

	if (!code && more > rewrite->growth)
		code = CUDA_ERROR_INVALID_IMAGE;
	rewrite->growth -= code ? 0 : more;
	return code;
}

/* Shows a member. @ret: on the heap, also if this does not succeed */
static CUresult show(struct rewrite *rewrite, const uint8_t *at, const struct fatbin_entry *entry,
	fatbin_visit *visit, void *context, struct fatbin_bytes *ret)
{
	const uint8_t *payload = at + entry->header_bytes;
	struct fatbin_bytes unpacked = {0};
	struct fatbin_target target;
	CUresult code;

	memcpy(&target, at + sizeof(*entry), sizeof(target));
	if (!(target.flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD)))
		return show_contents(rewrite, payload, entry->payload_bytes, visit, context, ret);
	code = unpack(&target, payload, entry->payload_bytes, &unpacked);
	if (!code)
		code = show_contents(rewrite, unpacked.at, unpacked.count, visit, context, ret);
	free(unpacked.at);
	return code;
}

static CUresult rewrite_member(
	struct rewrite *rewrite, uint64_t at, unsigned arch, fatbin_visit *visit, void *context)
{
	const uint8_t *member = rewrite->image + at;
	struct fatbin_bytes contents = {0};
	CUresult code = CUDA_SUCCESS;
	struct fatbin_entry entry;
	bool fits = true;

	memcpy(&entry, member, sizeof(entry));
	if (fatbin_is_for(member, arch) && !rewrite->members--)
		return CUDA_ERROR_INVALID_IMAGE;
	if (fatbin_is_for(member, arch))
		code = show(rewrite, member, &entry, visit, context, &contents);
	if (!code && contents.at && !rewrite->out.at)
		fits = append(rewrite, rewrite->image, at);
	if (!code && fits && contents.at)
		fits = append_member(rewrite, member, entry, &contents);
	else if (!code && fits && rewrite->out.at)
		fits = append(rewrite, member, entry.header_bytes + entry.payload_bytes);
	free(contents.at);
	return fits ? code : CUDA_ERROR_OUT_OF_MEMORY;
}

uint64_t fatbin_unpacks_to(const uint8_t *image, unsigned arch)
{
	struct fatbin_header header;
	struct fatbin_entry entry;
	uint64_t at, end, sum = 0, bytes;

	memcpy(&header, image, sizeof(header));
	end = header.header_bytes + header.payload_bytes;
	for (at = header.header_bytes; at < end; at += entry.header_bytes + entry.payload_bytes) {
		memcpy(&entry, image + at, sizeof(entry));
		bytes = fatbin_is_for(image + at, arch) ? claim(image + at) : 0;
		sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
	}
	return sum;
}

CUresult fatbin_rewrite(const uint8_t *image, unsigned arch, uint64_t room, fatbin_visit *visit,
	void *context, struct fatbin_bytes *ret)
{
	struct rewrite rewrite = {.image = image, .members = FATBIN_MEMBERS_MAX};
	struct fatbin_header header;
	struct fatbin_entry entry;
	CUresult code = CUDA_SUCCESS;
	uint64_t at, end;

	if (fatbin_unpacks_to(image, arch) > room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(&header, image, sizeof(header));
	end = header.header_bytes + header.payload_bytes;
	rewrite.growth = FATBIN_GROWTH_MAX(end);
	for (at = header.header_bytes; !code && at < end; at += entry.header_bytes + entry.payload_bytes) {
		memcpy(&entry, image + at, sizeof(entry));
		code = rewrite_member(&rewrite, at, arch, visit, context);
	}
	if (code || !rewrite.out.at) {
		free(rewrite.out.at);
		return code;
	}
	header.payload_bytes = rewrite.out.count - header.header_bytes;
	memcpy(rewrite.out.at, &header, sizeof(header));
	*ret = rewrite.out;
	return CUDA_SUCCESS;
}

/* Return: the architecture of a member's code, or compilable text, that fits this architecture; 0:
 * none */
static unsigned is_for(const uint8_t *at, uint16_t kind, unsigned arch)
{
	struct fatbin_entry entry;
	struct fatbin_target target;

	memcpy(&entry, at, sizeof(entry));
	if (entry.kind != kind || entry.header_bytes < sizeof(entry) + sizeof(target))
		return 0;
	memcpy(&target, at + sizeof(entry), sizeof(target));
	if (kind == FATBIN_KIND_ELF)
		return fatbin_is_for(at, arch) ? target.arch : 0;
	if (target.arch > arch || (target.arch < arch && target.flags & ~FATBIN_FLAGS_PLAIN))
		return 0;
	return target.arch;
}

static const uint8_t *find_best(const uint8_t *image, uint16_t kind, unsigned arch)
{
	const uint8_t *found = NULL;
	struct fatbin_header header;
	struct fatbin_entry entry;
	uint64_t at, end;
	unsigned best = 0;

	memcpy(&header, image, sizeof(header));
	end = header.header_bytes + header.payload_bytes;
	for (at = header.header_bytes; at < end; at += entry.header_bytes + entry.payload_bytes) {
		unsigned member = is_for(image + at, kind, arch);

		memcpy(&entry, image + at, sizeof(entry));
		if (member <= best)
			continue;
		best = member;
		found = image + at;
	}
	return found;
}

static CUresult copy_best(
	const uint8_t *image, uint16_t kind, unsigned arch, uint64_t room, struct fatbin_bytes *ret)
{
	const uint8_t *member = find_best(image, kind, arch), *payload;
	struct fatbin_target target;
	struct fatbin_entry entry;

	if (!member)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	memcpy(&entry, member, sizeof(entry));
	memcpy(&target, member + sizeof(entry), sizeof(target));
	payload = member + entry.header_bytes;
	if (claim(member) > room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (target.flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD))
		return unpack(&target, payload, entry.payload_bytes, ret);
	ret->at = malloc(entry.payload_bytes + 1);
	if (!ret->at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(ret->at, payload, entry.payload_bytes);
	ret->count = entry.payload_bytes;
	return CUDA_SUCCESS;
}

CUresult fatbin_code(const uint8_t *image, unsigned arch, uint64_t room, struct fatbin_bytes *ret)
{
	return copy_best(image, FATBIN_KIND_ELF, arch, room, ret);
}

CUresult fatbin_text(const uint8_t *image, unsigned arch, uint64_t room, struct fatbin_bytes *ret)
{
	return copy_best(image, FATBIN_KIND_TEXT, arch, room, ret);
}

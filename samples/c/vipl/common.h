/* What the samples share: a NIC with registered memory, and a connected VI. */
#include <stddef.h>

#include <vipl.h>

/* Ends the program unless the call succeeds. */
#define TRY(call) try((call), #call)
void try(VIP_RETURN code, const char *call);

struct side {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE vi;
    VIP_MEM_HANDLE handle;
    unsigned char *memory; /* registered: data first, then descriptors */
    size_t data;
};

/* Opens a NIC, and registers memory for n bytes of data and some descriptors. */
void open_side(struct side *s, size_t n, int descriptors);
VIP_DESCRIPTOR *descriptor(struct side *s, int i);

/* Makes a descriptor of n bytes of the data, from `from` on. */
VIP_DESCRIPTOR *prepare(struct side *s, int i, size_t from, size_t n);

void new_vi(struct side *s);

/* Waits for a client at a discriminator, or requests a connection with a server on a node. */
void serve(struct side *s, const char *discriminator);
void request(struct side *s, const char *node, const char *discriminator);

/* Waits for a message; NULL if the other side has disconnected. */
VIP_DESCRIPTOR *receive(struct side *s);

void close_side(struct side *s);

double seconds(void);

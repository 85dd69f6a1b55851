//! Reusable places, and lists that run through them, with no allocation once warmed up.

/// The place of something in a [`Slab`].
pub(super) type Id = u32;

/// No place.
pub(super) const NIL: Id = Id::MAX;

/// The neighbours of an item in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    prev: Id,
    next: Id,
}

impl Link {
    pub(super) const NONE: Link = Link {
        prev: NIL,
        next: NIL,
    };
}

/// Something that can be in several lists at once, one per link.
pub(super) trait Linked {
    fn links(&self) -> &[Link];
    fn links_mut(&mut self) -> &mut [Link];
}

/// Items by place. A place is used again once it is released.
#[derive(Debug)]
pub(super) struct Slab<X> {
    items: Vec<X>,
    free: Vec<Id>,
}

impl<X> Default for Slab<X> {
    fn default() -> Slab<X> {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<X> Slab<X> {
    pub(super) fn insert(&mut self, item: X) -> Id {
        if let Some(id) = self.free.pop() {
            self.items[id as usize] = item;
            return id;
        }
        let id = Id::try_from(self.items.len()).expect("bounded by the bytes that may wait");
        self.items.push(item);
        id
    }

    /// Releases the place. Its item stays until the place is used again.
    pub(super) fn release(&mut self, id: Id) {
        self.free.push(id);
    }
}

impl<X> std::ops::Index<Id> for Slab<X> {
    type Output = X;
    fn index(&self, id: Id) -> &X {
        &self.items[id as usize]
    }
}

impl<X> std::ops::IndexMut<Id> for Slab<X> {
    fn index_mut(&mut self, id: Id) -> &mut X {
        &mut self.items[id as usize]
    }
}

/// A list through the items of one slab, by one of their links.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: Id,
    tail: Id,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }
}

impl List {
    pub(super) fn head(&self) -> Option<Id> {
        (self.head != NIL).then_some(self.head)
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push_back<X: Linked>(&mut self, items: &mut Slab<X>, link: usize, id: Id) {
        items[id].links_mut()[link] = Link {
            prev: self.tail,
            next: NIL,
        };
        match self.tail {
            NIL => self.head = id,
            tail => items[tail].links_mut()[link].next = id,
        }
        self.tail = id;
        self.len += 1;
    }

    /// Removes `id`, which is in this list, from any position.
    pub(super) fn unlink<X: Linked>(&mut self, items: &mut Slab<X>, link: usize, id: Id) {
        let Link { prev, next } = items[id].links()[link];
        match prev {
            NIL => self.head = next,
            prev => items[prev].links_mut()[link].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => items[next].links_mut()[link].prev = prev,
        }
        self.len -= 1;
    }

    /// Returns the item after `id`, which is in this list.
    pub(super) fn next<X: Linked>(items: &Slab<X>, link: usize, id: Id) -> Option<Id> {
        let next = items[id].links()[link].next;
        (next != NIL).then_some(next)
    }

    /// Moves the first item to the end.
    pub(super) fn rotate<X: Linked>(&mut self, items: &mut Slab<X>, link: usize) {
        if self.len < 2 {
            return;
        }
        let first = self.head;
        let second = items[first].links()[link].next;
        items[second].links_mut()[link].prev = NIL;
        items[self.tail].links_mut()[link].next = first;
        items[first].links_mut()[link] = Link {
            prev: self.tail,
            next: NIL,
        };
        (self.head, self.tail) = (second, first);
    }
}

//! The routes that a switch was sent, with the set of their labels: a fabric of a thousand switches
//! has a million of them, and each change asks which lead nowhere any more.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::fabric::plan::Route;
use crate::fabric::{Label, Labels};

#[derive(Default)]
pub(super) struct Routes {
    by_label: BTreeMap<Label, Route>,
    labels: Labels,
}

impl Routes {
    pub fn insert(&mut self, label: Label, route: Route) -> Option<Route> {
        self.labels.insert(label);
        self.by_label.insert(label, route)
    }

    pub fn remove(&mut self, label: &Label) -> Option<Route> {
        self.labels.remove(*label);
        self.by_label.remove(label)
    }

    pub fn get_mut(&mut self, label: &Label) -> Option<&mut Route> {
        self.by_label.get_mut(label)
    }

    pub fn labels(&self) -> &Labels {
        &self.labels
    }
}

impl Deref for Routes {
    type Target = BTreeMap<Label, Route>;

    fn deref(&self) -> &BTreeMap<Label, Route> {
        &self.by_label
    }
}
